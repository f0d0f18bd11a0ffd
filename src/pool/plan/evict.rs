//! Makes room in a full pool: idle workers are evicted for a kind or key that has no worker.

use std::{cmp::Reverse, time::Duration};

use crate::{config::Eviction, model::WorkerId};

use super::{
    Step,
    capacity::{FreeCapacity, Shortage},
    grow::{CapacityLimit, UnmetNeed},
    view::{KindView, PoolView, WorkerView},
};

/// Waiting time after which a query no longer waits for an idle worker: the next worker that ends a query makes room.
const YIELD_AFTER: Duration = Duration::from_secs(5);

type Victim<'a> = (&'a KindView, &'a WorkerView);

pub(super) fn plan(
    view: &PoolView,
    needy: &KindView,
    unmet: Vec<UnmetNeed>,
    capacity: &mut FreeCapacity,
    leaving: &mut Vec<WorkerId>,
    steps: &mut Vec<Step>,
) {
    for need in unmet {
        let Some(victims) = victims(view, needy, &need, capacity, leaving) else {
            steps.extend(yield_step(view, needy, &need, capacity, leaving));
            return;
        };
        for (kind, worker) in victims {
            leaving.push(worker.id);
            capacity.add_leaving(worker);
            let reason = format!("makes room for kind {}: {}", needy.config.name, need.reason);
            steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
        }
        // Takes the room that they leave.
        let _ = capacity.take(needy.memory());
    }
}

/// As many workers as it takes to make room. `None` if evicting all that may go would not be enough.
fn victims<'a>(
    view: &'a PoolView,
    needy: &KindView,
    need: &UnmetNeed,
    capacity: &FreeCapacity,
    leaving: &[WorkerId],
) -> Option<Vec<Victim<'a>>> {
    let mut capacity = capacity.clone();
    let mut leaving = leaving.to_vec();
    let mut limit = need.limit;
    let mut found = Vec::new();
    loop {
        let (kind, worker) = victim(view, needy, limit, &leaving)?;
        leaving.push(worker.id);
        capacity.add_leaving(worker);
        found.push((kind, worker));
        limit = match capacity.clone().take(needy.memory()) {
            Err(Shortage::Workers) => CapacityLimit::PoolMax,
            Err(Shortage::Memory) => CapacityLimit::Memory,
            Ok(()) | Err(Shortage::Pending | Shortage::Starts) => return Some(found),
        };
    }
}

/// The worker that the eviction strategy picks among those that may go.
fn victim<'a>(view: &'a PoolView, needy: &KindView, limit: CapacityLimit, leaving: &[WorkerId]) -> Option<Victim<'a>> {
    let candidates = view.kinds.iter().flat_map(|kind| kind.workers.iter().map(move |worker| (kind, worker)));
    let may_go = candidates.filter(|(kind, worker)| {
        let same = kind.kind == needy.kind;
        // In a keyed kind the worker of one key replaces that of another, so the floor holds.
        let allowed = if same { kind.config.keyed && worker.bound } else { spare_workers(kind, leaving) > 0 };
        let helps = match limit {
            CapacityLimit::KindMax => same,
            CapacityLimit::PoolMax => true,
            CapacityLimit::Memory => worker.reserved > 0,
        };
        allowed && helps && is_idle(worker) && !leaving.contains(&worker.id)
    });
    may_go.min_by_key(|(_, worker)| rank(view.eviction, worker))
}

/// True if the worker may be evicted: it is free, not wanted, not drained and replaces no other.
pub(super) fn is_idle(worker: &WorkerView) -> bool {
    worker.is_free() && !worker.wanted && !worker.drained && worker.replaces.is_none()
}

/// Number of workers that a kind has beyond its floor.
pub(super) fn spare_workers(kind: &KindView, leaving: &[WorkerId]) -> usize {
    kind.live().saturating_sub(kind.floor + kind.count_of(leaving))
}

/// The worker with the least rank is evicted first; of equal ones the oldest.
pub(super) fn rank(strategy: Eviction, worker: &WorkerView) -> (Reverse<Duration>, u64, Reverse<u64>, u64) {
    let (time, count, size) = match strategy {
        Eviction::Lru => (worker.idle_for, 0, 0),
        Eviction::Oldest => (worker.age, 0, 0),
        Eviction::LeastUsed => (Duration::ZERO, worker.queries, 0),
        Eviction::Largest => (Duration::ZERO, 0, worker.rss),
    };
    (Reverse(time), count, Reverse(size), worker.id.0)
}

/// Under constant load no worker is ever idle. A need that has lasted is met by the next worker that ends a query: one of
/// the same kind that serves another key, or one of the kind with the most workers to spare.
fn yield_step(
    view: &PoolView,
    needy: &KindView,
    need: &UnmetNeed,
    capacity: &FreeCapacity,
    leaving: &[WorkerId],
) -> Option<Step> {
    if need.waited < YIELD_AFTER {
        return None;
    }
    let own = needy.workers.iter().any(|worker| worker.bound && worker.is_up() && !worker.drained);
    let own = own && (!need.for_floor || !needy.demand.lanes.is_empty());
    let others = || view.kinds.iter().filter(|kind| kind.kind != needy.kind && need.limit != CapacityLimit::KindMax);
    let most = || {
        let helpful = others().filter(|kind| spare_workers(kind, leaving) > 0 && frees(kind, need.limit));
        helpful
            .max_by_key(|kind| spare_workers(kind, leaving))
            .filter(|_| would_suffice(others(), needy, capacity, leaving))
    };
    let kind = match most {
        most if need.for_floor => most().or(Some(needy).filter(|_| own))?,
        most => Some(needy).filter(|_| own).or_else(most)?,
    };
    let reason =
        format!("makes room for kind {}: {}, and this has lasted {:.0?}", needy.config.name, need.reason, need.waited);
    Some(Step::RequestYield { kind: kind.kind, reason })
}

fn frees(kind: &KindView, limit: CapacityLimit) -> bool {
    limit != CapacityLimit::Memory || kind.workers.iter().any(|worker| worker.is_up() && worker.reserved > 0)
}

/// True if there would be room once each of these kinds gave up all that it has to spare.
fn would_suffice<'a>(
    kinds: impl Iterator<Item = &'a KindView>,
    needy: &KindView,
    capacity: &FreeCapacity,
    leaving: &[WorkerId],
) -> bool {
    let mut capacity = capacity.clone();
    for kind in kinds {
        let up = |worker: &&WorkerView| worker.is_up() && !worker.drained && !leaving.contains(&worker.id);
        let mut workers: Vec<&WorkerView> = kind.workers.iter().filter(up).collect();
        workers.sort_by_key(|worker| Reverse(worker.reserved));
        for worker in workers.into_iter().take(spare_workers(kind, leaving)) {
            capacity.add_leaving(worker);
        }
    }
    !matches!(capacity.take(needy.memory()), Err(Shortage::Workers | Shortage::Memory))
}
