//! Shrinks a pool that is beyond its bounds because these were lowered while it ran.

use crate::model::WorkerId;

use super::{
    Step,
    evict::{is_idle, rank, spare_workers},
    view::{KindView, PoolView, WorkerView},
};

/// The bound that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excess {
    Workers,
    Memory,
}

/// Evicts idle workers, never below the floor of their kind. If that is not enough, asks a busy one to yield.
pub(super) fn plan(view: &PoolView, leaving: &mut Vec<WorkerId>, steps: &mut Vec<Step>) {
    while let Some(excess) = excess(view, leaving) {
        let reason = reason(view, excess);
        let Some((kind, worker)) = idle(view, excess, leaving) else {
            let busy = view.kinds.iter().filter(|kind| has_busy(kind, excess, leaving));
            let most = busy.max_by_key(|kind| spare_workers(kind, leaving));
            steps.extend(most.map(|kind| Step::RequestYield { kind: kind.kind, reason }));
            return;
        };
        leaving.push(worker.id);
        steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
    }
}

fn excess(view: &PoolView, leaving: &[WorkerId]) -> Option<Excess> {
    let all = view.kinds.iter().flat_map(|kind| &kind.workers);
    let stay: Vec<&WorkerView> = all.filter(|worker| stays(worker, leaving)).collect();
    if stay.len() > view.max_workers {
        return Some(Excess::Workers);
    }
    let reserved: u64 = stay.iter().map(|worker| worker.reserved).sum();
    view.memory_budget.filter(|budget| reserved > *budget).map(|_| Excess::Memory)
}

fn stays(worker: &WorkerView, leaving: &[WorkerId]) -> bool {
    !worker.is_stopping() && !leaving.contains(&worker.id)
}

fn helps(worker: &WorkerView, excess: Excess) -> bool {
    excess == Excess::Workers || worker.reserved > 0
}

fn idle<'a>(view: &'a PoolView, excess: Excess, leaving: &[WorkerId]) -> Option<(&'a KindView, &'a WorkerView)> {
    let kinds = view.kinds.iter().filter(|kind| spare_workers(kind, leaving) > 0);
    let unpaired = kinds.flat_map(|kind| {
        let succeeded = kind.succeeded();
        let alone = kind.workers.iter().filter(move |worker| !succeeded.contains(&worker.id));
        alone.map(move |worker| (kind, worker))
    });
    let may_go = unpaired.filter(|(_, worker)| is_idle(worker) && helps(worker, excess) && stays(worker, leaving));
    may_go.min_by_key(|(_, worker)| rank(view.eviction, worker))
}

fn has_busy(kind: &KindView, excess: Excess, leaving: &[WorkerId]) -> bool {
    let up = |worker: &WorkerView| worker.is_up() && !worker.drained && stays(worker, leaving) && helps(worker, excess);
    spare_workers(kind, leaving) > 0 && kind.workers.iter().any(up)
}

fn reason(view: &PoolView, excess: Excess) -> String {
    match excess {
        Excess::Workers => format!("the pool may have {} workers (pool.max_workers)", view.max_workers),
        Excess::Memory => {
            format!("the pool may take {} bytes (pool.memory_budget)", view.memory_budget.unwrap_or_default())
        }
    }
}
