//! Makes room in a full pool: idle workers are evicted for a kind or key that has no worker.

use std::{cmp::Reverse, time::Duration};

use crate::config::Eviction;

use super::{
    Planner, Step,
    capacity::{CapacityLimit, Shortage},
    grow::UnmetNeed,
    view::{KindView, WorkerView},
};

/// Waiting time after which a query no longer waits for an idle worker: the next worker that ends a query makes room.
const YIELD_AFTER: Duration = Duration::from_secs(5);

type Victim<'a> = (&'a KindView, &'a WorkerView);

impl<'a> Planner<'a> {
    /// Evicts workers for the unmet needs of a kind.
    pub(super) fn make_room(&mut self, needy: &KindView, unmet: Vec<UnmetNeed>) {
        for need in unmet {
            let Some(victims) = self.victims(needy, need.limit) else {
                let step = self.yield_step(needy, &need);
                self.steps.extend(step);
                return;
            };
            for (kind, worker) in victims {
                self.mark_evicted(worker);
                let reason = format!("makes room for kind {}: {}", needy.config.name, need.reason);
                self.steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
            }
            // Takes the room that they leave.
            let _ = self.capacity.take(needy.memory());
        }
    }

    fn mark_evicted(&mut self, worker: &WorkerView) {
        self.leaving.push(worker.id);
        self.capacity.add_leaving(worker);
    }

    /// As many workers as it takes to make room. `None` if evicting all that may go would not be enough.
    fn victims(&self, needy: &KindView, mut limit: CapacityLimit) -> Option<Vec<Victim<'a>>> {
        let (capacity, leaving) = (self.capacity.clone(), self.leaving.clone());
        let mut trial = Planner { view: self.view, capacity, leaving, steps: Vec::new() };
        let mut found = Vec::new();
        loop {
            let (kind, worker) = trial.victim(needy, limit)?;
            trial.mark_evicted(worker);
            found.push((kind, worker));
            match trial.capacity.clone().take(needy.memory()) {
                Err(Shortage::Limit(lacking)) => limit = lacking,
                Ok(()) | Err(Shortage::Pending | Shortage::Starts) => return Some(found),
            }
        }
    }

    /// The worker that the eviction strategy picks among those that may go.
    fn victim(&self, needy: &KindView, limit: CapacityLimit) -> Option<Victim<'a>> {
        let candidates = self.view.kinds.iter().flat_map(|kind| kind.workers.iter().map(move |worker| (kind, worker)));
        let may_go = candidates.filter(|(kind, worker)| {
            let same = kind.kind == needy.kind;
            // In a keyed kind the worker of one key replaces that of another, so the floor holds.
            let allowed = if same { kind.config.keyed && worker.bound } else { self.spare_workers(kind) > 0 };
            let helps = if limit == CapacityLimit::KindMax { same } else { limit.is_eased_by(worker) };
            allowed && helps && is_idle(worker) && !self.leaving.contains(&worker.id)
        });
        may_go.min_by_key(|(_, worker)| rank(self.view.eviction, worker))
    }

    /// Under constant load no worker is ever idle. A need that has lasted is met by the next worker that ends a query: one
    /// of the same kind that serves another key, or one of the kind with the most workers to spare.
    fn yield_step(&self, needy: &KindView, need: &UnmetNeed) -> Option<Step> {
        if need.waited < YIELD_AFTER {
            return None;
        }
        let has_own = needy.workers.iter().any(|worker| worker.bound && worker.is_up() && !worker.drained);
        let has_own = has_own && (!need.for_floor || !needy.demand.lanes.is_empty());
        let own = has_own.then_some(needy.kind);
        let other = || self.yielding_kind(needy, need.limit);
        let kind = if need.for_floor { other().or(own)? } else { own.or_else(other)? };
        let (name, waited) = (&needy.config.name, need.waited);
        let reason = format!("makes room for kind {name}: {}, and this has lasted {waited:.0?}", need.reason);
        Some(Step::RequestYield { kind, reason })
    }

    /// The other kind with the most workers to spare, if there would be room once all kinds gave up their spare workers.
    fn yielding_kind(&self, needy: &KindView, limit: CapacityLimit) -> Option<usize> {
        let others =
            || self.view.kinds.iter().filter(|kind| kind.kind != needy.kind && limit != CapacityLimit::KindMax);
        let has_memory = |kind: &KindView| kind.workers.iter().any(|worker| worker.is_up() && worker.reserved > 0);
        let eases = |kind: &KindView| limit != CapacityLimit::Memory || has_memory(kind);
        let helpful = others().filter(|kind| self.spare_workers(kind) > 0 && eases(kind));
        let most = helpful.max_by_key(|kind| self.spare_workers(kind))?;
        let mut capacity = self.capacity.clone();
        for kind in others() {
            let may_yield =
                |worker: &&WorkerView| worker.is_up() && !worker.drained && !self.leaving.contains(&worker.id);
            let mut workers: Vec<&WorkerView> = kind.workers.iter().filter(may_yield).collect();
            workers.sort_by_key(|worker| Reverse(worker.reserved));
            for worker in workers.into_iter().take(self.spare_workers(kind)) {
                capacity.add_leaving(worker);
            }
        }
        let suffices = !matches!(capacity.take(needy.memory()), Err(Shortage::Limit(_)));
        suffices.then_some(most.kind)
    }
}

/// True if the worker may be evicted: it is free, not wanted, not drained and replaces no other.
pub(super) fn is_idle(worker: &WorkerView) -> bool {
    worker.is_free() && !worker.wanted && !worker.drained && worker.replaces.is_none()
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
