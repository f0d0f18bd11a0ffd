//! How many queries of a kind are in each state, kept where the states change.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::state::{QueryState, State};

use super::queue::KindQueue;

/// A kind's line of waiting queries together with the counts of all its queries.
#[derive(Debug, Default)]
pub(super) struct KindTally {
    pub queue: KindQueue,
    counts: [AtomicUsize; QueryState::ALL.len()],
}

impl KindTally {
    pub(super) fn entered(&self, state: QueryState) {
        self.counts[state.index()].fetch_add(1, Relaxed);
    }

    pub(super) fn left(&self, state: QueryState) {
        self.counts[state.index()].fetch_sub(1, Relaxed);
    }

    pub(super) fn moved(&self, from: QueryState, to: QueryState) {
        self.entered(to);
        self.left(from);
    }

    pub(super) fn waiting(&self) -> usize {
        self.count(QueryState::Pending)
    }

    pub(super) fn count(&self, state: QueryState) -> usize {
        self.counts[state.index()].load(Relaxed)
    }
}
