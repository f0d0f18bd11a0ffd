//! How many queries of a kind are in each state, kept where the states change.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    metrics::KindQueryMetrics,
    state::{QueryState, State},
    sync::AtomicUsize,
};

use super::{MemoryLimits, log::LogLimits, owners::Owners, queue::KindQueue};

/// A kind's line of waiting queries together with the counts of all its queries.
#[derive(Debug)]
pub(super) struct KindTally {
    pub queue: KindQueue,
    counts: [AtomicUsize; QueryState::ALL.len()],
    /// What waits of all kinds.
    all_waiting: Arc<Waiting>,
    /// The owners of queries of all kinds.
    pub owners: Arc<Owners>,
    /// For the logs of all its queries.
    pub log: LogLimits,
    pub metrics: Arc<KindQueryMetrics>,
}

/// How many queries wait, and the bytes of their payloads.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub queries: AtomicUsize,
    pub bytes: AtomicUsize,
}

impl KindTally {
    pub(super) fn new(
        limits: &MemoryLimits,
        all_waiting: Arc<Waiting>,
        owners: Arc<Owners>,
        metrics: Arc<KindQueryMetrics>,
    ) -> Self {
        let queue = KindQueue::new(limits.aging);
        let log = LogLimits { events: limits.max_events, bytes: limits.max_bytes };
        Self { queue, counts: Default::default(), all_waiting, owners, log, metrics }
    }

    /// A query with a payload of so many bytes is in this state now.
    pub(super) fn entered(&self, state: QueryState, bytes: usize) {
        self.counts[state.index()].fetch_add(1, Relaxed);
        if state == QueryState::Pending {
            self.all_waiting.queries.fetch_add(1, Relaxed);
            self.all_waiting.bytes.fetch_add(bytes, Relaxed);
        }
    }

    pub(super) fn left(&self, state: QueryState, bytes: usize) {
        self.counts[state.index()].fetch_sub(1, Relaxed);
        if state == QueryState::Pending {
            self.all_waiting.queries.fetch_sub(1, Relaxed);
            self.all_waiting.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    pub(super) fn moved(&self, from: QueryState, to: QueryState, bytes: usize) {
        self.entered(to, bytes);
        self.left(from, bytes);
    }

    pub(super) fn waiting(&self) -> usize {
        self.count(QueryState::Pending)
    }

    /// Accepted and not ended.
    pub(super) fn unfinished(&self) -> usize {
        QueryState::ALL.iter().filter(|state| !state.is_terminal()).map(|state| self.count(*state)).sum()
    }

    pub(super) fn count(&self, state: QueryState) -> usize {
        self.counts[state.index()].load(Relaxed)
    }
}
