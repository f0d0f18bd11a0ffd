//! The queue of one kind, with the counts of its queries by state.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    metrics::KindQueryMetrics,
    state::{QueryState, State},
    sync::AtomicUsize,
};

use super::{MemoryLimits, log::LogLimits, owners::OwnerCounts, queue::KindQueue};

#[derive(Debug)]
pub(super) struct KindState {
    pub queue: KindQueue,
    counts: [AtomicUsize; QueryState::ALL.len()],
    /// Shared by all kinds.
    all_waiting: Arc<WaitingTotals>,
    /// Shared by all kinds.
    pub owners: Arc<OwnerCounts>,
    pub log: LogLimits,
    pub metrics: Arc<KindQueryMetrics>,
}

/// Number of waiting queries, and bytes of their payloads.
#[derive(Debug, Default)]
pub(super) struct WaitingTotals {
    pub queries: AtomicUsize,
    pub bytes: AtomicUsize,
}

impl KindState {
    pub(super) fn new(
        limits: &MemoryLimits,
        all_waiting: Arc<WaitingTotals>,
        owners: Arc<OwnerCounts>,
        metrics: Arc<KindQueryMetrics>,
    ) -> Self {
        let queue = KindQueue::new(limits.aging);
        let log = LogLimits { events: limits.max_events, bytes: limits.max_bytes };
        Self { queue, counts: Default::default(), all_waiting, owners, log, metrics }
    }

    /// Counts a query into a state. `bytes` is the size of its payload.
    pub(super) fn on_enter(&self, state: QueryState, bytes: usize) {
        self.counts[state.index()].fetch_add(1, Relaxed);
        if state == QueryState::Pending {
            self.all_waiting.queries.fetch_add(1, Relaxed);
            self.all_waiting.bytes.fetch_add(bytes, Relaxed);
        }
    }

    pub(super) fn on_leave(&self, state: QueryState, bytes: usize) {
        self.counts[state.index()].fetch_sub(1, Relaxed);
        if state == QueryState::Pending {
            self.all_waiting.queries.fetch_sub(1, Relaxed);
            self.all_waiting.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    pub(super) fn on_move(&self, from: QueryState, to: QueryState, bytes: usize) {
        self.on_enter(to, bytes);
        self.on_leave(from, bytes);
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.count(QueryState::Pending)
    }

    /// Number of queries that were accepted and have not ended.
    pub(super) fn unfinished_count(&self) -> usize {
        QueryState::ALL.iter().filter(|state| !state.is_terminal()).map(|state| self.count(*state)).sum()
    }

    pub(super) fn count(&self, state: QueryState) -> usize {
        self.counts[state.index()].load(Relaxed)
    }
}
