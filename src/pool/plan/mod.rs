//! Decides how many workers of which kind there should be: pure functions from what is to what to do.
//!
//! One pass looks at the whole pool, in this order: workers that are due are replaced, kinds that need workers get them
//! as far as there is room, idle workers of others make room where there is none, and what is not needed goes.

mod evict;
mod grow;
mod replace;
mod room;
mod shrink;
mod view;

use std::sync::Arc;

use crate::model::{DeathCause, WorkerId};

use room::Room;
pub(super) use view::{DemandView, KindView, PoolView, Starts, WorkerView};

/// One thing to do, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Start a worker for each of these: for a key, or for whatever comes.
    Grow { kind: usize, keys: Vec<Option<Arc<str>>>, reason: String },
    /// Start a worker that takes the place of another one once it is ready.
    Replace { kind: usize, worker: WorkerId, reason: String },
    /// Stop workers: at once those that are free, the others after their query.
    Retire { kind: usize, workers: Vec<WorkerId>, cause: DeathCause, reason: String },
    /// Stop workers that are free. One that has got a query in the meantime is let be.
    Shrink { kind: usize, workers: Vec<WorkerId>, cause: DeathCause, reason: String },
    /// Stop a worker that is free, to make room.
    Evict { kind: usize, worker: WorkerId, reason: String },
    /// The next worker of the kind that is done with its query makes room, even if more of them wait for it.
    GiveWay { kind: usize, reason: String },
}

pub(super) fn plan(view: &PoolView) -> Vec<Step> {
    let mut room = Room::of(view);
    let mut steps = Vec::new();
    for kind in &view.kinds {
        replace::plan(kind, &mut room, &mut steps);
    }
    let mut evicted = leaving(view, &steps);
    for kind in &view.kinds {
        let unmet = grow::plan(kind, &mut room, &mut steps);
        evict::plan(view, kind, unmet, &mut room, &mut evicted, &mut steps);
    }
    for kind in &view.kinds {
        shrink::plan(kind, &evicted, &mut steps);
    }
    steps
}

/// Workers that are to be stopped with nobody in their place: whoever counts further on must not count them.
fn leaving(view: &PoolView, steps: &[Step]) -> Vec<WorkerId> {
    let mut leaving = Vec::new();
    for step in steps {
        if let Step::Retire { kind, workers, .. } = step
            && let Some(kind) = view.kinds.iter().find(|view| view.kind == *kind)
        {
            leaving.extend(workers.iter().filter(|id| kind.successor_of(**id).is_none()));
        }
    }
    leaving
}
