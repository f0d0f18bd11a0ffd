//! Shrinks a pool that is beyond its bounds because these were lowered while it ran.

use super::{
    Planner, Step,
    capacity::CapacityLimit,
    evict::{is_idle, rank},
    view::{KindView, WorkerView},
};

impl<'a> Planner<'a> {
    /// Evicts idle workers, never below the floor of their kind. If that is not enough, asks a busy one to yield.
    pub(super) fn shrink_to_bounds(&mut self) {
        while let Some(limit) = self.exceeded_limit() {
            let reason = self.excess_reason(limit);
            let Some((kind, worker)) = self.idle_worker(limit) else {
                let busy = self.view.kinds.iter().filter(|kind| self.has_busy_worker(kind, limit));
                let most = busy.max_by_key(|kind| self.spare_workers(kind));
                self.steps.extend(most.map(|kind| Step::RequestYield { kind: kind.kind, reason }));
                return;
            };
            self.leaving.push(worker.id);
            self.steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
        }
    }

    fn exceeded_limit(&self) -> Option<CapacityLimit> {
        let all = self.view.kinds.iter().flat_map(|kind| &kind.workers);
        let staying: Vec<&WorkerView> = all.filter(|worker| self.stays(worker)).collect();
        if staying.len() > self.view.max_workers {
            return Some(CapacityLimit::PoolMax);
        }
        let reserved: u64 = staying.iter().map(|worker| worker.reserved).sum();
        self.view.memory_budget.filter(|budget| reserved > *budget).map(|_| CapacityLimit::Memory)
    }

    fn idle_worker(&self, limit: CapacityLimit) -> Option<(&'a KindView, &'a WorkerView)> {
        let kinds = self.view.kinds.iter().filter(|kind| self.spare_workers(kind) > 0);
        let unpaired = kinds.flat_map(|kind| {
            let succeeded = kind.succeeded();
            let alone = kind.workers.iter().filter(move |worker| !succeeded.contains(&worker.id));
            alone.map(move |worker| (kind, worker))
        });
        let may_go = unpaired.filter(|(_, worker)| is_idle(worker) && limit.is_eased_by(worker) && self.stays(worker));
        may_go.min_by_key(|(_, worker)| rank(self.view.eviction, worker))
    }

    fn has_busy_worker(&self, kind: &KindView, limit: CapacityLimit) -> bool {
        let may_yield =
            |worker: &WorkerView| worker.is_up() && !worker.drained && self.stays(worker) && limit.is_eased_by(worker);
        self.spare_workers(kind) > 0 && kind.workers.iter().any(may_yield)
    }

    fn excess_reason(&self, limit: CapacityLimit) -> String {
        match (limit, self.view.memory_budget) {
            (CapacityLimit::Memory, Some(budget)) => {
                format!("the pool may take {budget} bytes (pool.memory_budget)")
            }
            _ => format!("the pool may have {} workers (pool.max_workers)", self.view.max_workers),
        }
    }
}
