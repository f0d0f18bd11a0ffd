//! Decides how many workers of which kind there should be: pure functions from what is to what to do.
//!
//! One pass looks at the whole pool, in this order: workers that are due are replaced, a pool beyond its
//! bounds is brought within them, kinds that need workers get them as far as there is room, idle workers of others make room where there is none, and what is not needed goes.

mod bound;
mod evict;
mod grow;
mod replace;
mod room;
mod shrink;
#[cfg(test)]
mod tests;
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
    /// The next worker of the kind that is done with its query makes room, even if more queries wait for it.
    GiveWay { kind: usize, reason: String },
}

pub(super) fn plan(view: &PoolView) -> Vec<Step> {
    let mut room = Room::of(view);
    let mut steps = Vec::new();
    for kind in &view.kinds {
        replace::plan(kind, &mut room, &mut steps);
    }
    let mut leaving: Vec<WorkerId> = steps.iter().flat_map(Step::retired).copied().collect();
    bound::plan(view, &mut leaving, &mut steps);
    let mut wishes: Vec<_> = view.kinds.iter().filter_map(|kind| Some((kind, grow::wish(kind)?))).collect();
    // A kind that has no worker comes before one that would like to have more.
    wishes.sort_by_key(|(_, wish)| !wish.pressing);
    for (kind, wish) in wishes {
        let unmet = grow::plan(kind, wish, &mut room, &mut steps);
        evict::plan(view, kind, unmet, &mut room, &mut leaving, &mut steps);
    }
    for kind in &view.kinds {
        shrink::plan(kind, &leaving, &mut steps);
    }
    steps
}

impl Step {
    fn retired(&self) -> &[WorkerId] {
        match self {
            Self::Retire { workers, .. } => workers,
            _ => &[],
        }
    }
}
