//! The plan for the size of the pool: pure functions from a view of the pool to the next steps.
//!
//! In this order: workers that are due are replaced; a pool beyond its bounds shrinks; kinds that need workers get them as
//! far as there is room, or idle workers are evicted to make room; workers that are not needed stop.

mod bound;
mod capacity;
mod evict;
mod grow;
mod replace;
mod shrink;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use crate::model::{DeathCause, WorkerId};

use capacity::FreeCapacity;
pub(super) use view::{DemandView, KindView, PoolView, StartHealth, WorkerView};

/// One change of the pool, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Start a worker for each entry of `keys`, bound to the key if there is one.
    Grow { kind: usize, keys: Vec<Option<Arc<str>>>, reason: String },
    /// Start a worker that replaces another one when it is ready.
    Replace { kind: usize, worker: WorkerId, reason: String },
    /// Stop workers: free ones at once, the others after their query.
    Retire { kind: usize, workers: Vec<WorkerId>, cause: DeathCause, reason: String },
    /// Stop workers that are free; those that have got a query since stay.
    Shrink { kind: usize, workers: Vec<WorkerId>, cause: DeathCause, reason: String },
    /// Stop a free worker to make room.
    Evict { kind: usize, worker: WorkerId, reason: String },
    /// Ask the next worker of the kind that ends a query to make room, even if more queries wait for it.
    RequestYield { kind: usize, reason: String },
}

/// One planning pass: the steps so far, and what they leave of the pool.
struct Planner<'a> {
    view: &'a PoolView,
    capacity: FreeCapacity,
    /// Workers that the steps so far stop.
    leaving: Vec<WorkerId>,
    steps: Vec<Step>,
}

pub(super) fn plan(view: &PoolView) -> Vec<Step> {
    let capacity = FreeCapacity::of(view);
    let mut planner = Planner { view, capacity, leaving: Vec::new(), steps: Vec::new() };
    for kind in &view.kinds {
        planner.replace_due_workers(kind);
    }
    planner.shrink_to_bounds();
    let mut requests: Vec<_> = view.kinds.iter().filter_map(|kind| Some((kind, grow::request(kind)?))).collect();
    // Kinds without a worker come before those that want more.
    requests.sort_by_key(|(_, request)| !request.pressing);
    for (kind, request) in requests {
        let unmet = planner.grow(kind, request);
        planner.make_room(kind, unmet);
    }
    for kind in &view.kinds {
        planner.shrink(kind);
    }
    planner.steps
}

impl Planner<'_> {
    /// True unless the worker is stopping, or a step stops it.
    fn stays(&self, worker: &WorkerView) -> bool {
        !worker.is_stopping() && !self.leaving.contains(&worker.id)
    }

    /// Number of workers that a kind has beyond its floor.
    fn spare_workers(&self, kind: &KindView) -> usize {
        kind.live().saturating_sub(kind.floor + kind.count_of(&self.leaving))
    }
}

impl Step {
    /// Slot of the kind that the step concerns.
    pub(super) fn kind(&self) -> usize {
        match self {
            Self::Grow { kind, .. }
            | Self::Replace { kind, .. }
            | Self::Retire { kind, .. }
            | Self::Shrink { kind, .. }
            | Self::Evict { kind, .. }
            | Self::RequestYield { kind, .. } => *kind,
        }
    }
}
