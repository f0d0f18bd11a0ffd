//! The broker that keeps everything in memory: fast, and gone with the process.

mod admission;
mod arrivals;
mod claims;
mod entry;
mod index;
mod kind_state;
mod lease;
mod log;
#[cfg(test)]
#[cfg(feature = "model-check")]
mod model_check;
mod owners;
mod queue;
mod reader;
mod readers;
mod record;
mod retention;
#[cfg(test)]
mod tests;
mod view;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Overflow,
    metrics::QueryMetrics,
    model::{QueryId, RejectReason, WorkerId},
    state::QueryState,
    sync::{AtomicBool, AtomicU64, Mutex, RwLock},
};

use super::{
    CancelOutcome, Claim, Claimant, DeadLetter, DeadLetterError, DeadLetterPage, Demand, EventReader, NewQuery,
    NoSuchDeadLetter, NoSuchQuery, Page, QueryError, QueryFilter, QueryInfo, QueryPage, SubmitError, Submitted,
    Unavailable,
};
use entry::Entry;
use index::QueryIndex;
use kind_state::{KindState, WaitingTotals};
use owners::OwnerCounts;
use retention::{Deadlines, STOPPED};

pub use lease::MemoryLease;
pub use reader::MemoryReader;

/// Limits of the memory broker.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// Queries that may wait, and bytes of their payloads.
    pub max_queries: usize,
    pub max_waiting_bytes: usize,
    /// Events and bytes of one query's log.
    pub max_events: usize,
    pub max_bytes: usize,
    /// Applied when a log is full and its readers are slow, after the worker has waited for `max_stall`.
    pub overflow: Overflow,
    pub max_stall: Duration,
    /// Age, number and bytes of the ended queries that are kept.
    pub retention: Duration,
    pub max_ended: usize,
    pub max_ended_bytes: usize,
    /// The same for dead letters.
    pub max_dead: usize,
    pub max_dead_bytes: usize,
    pub max_dead_age: Duration,
    /// Time after which a waiting query counts as one priority more urgent. `None`: never.
    pub aging: Option<Duration>,
    /// Queries of one owner that may wait, and run, in all kinds together.
    pub max_queries_per_owner: Option<usize>,
    pub max_running_per_owner: Option<usize>,
}

/// All queries of this process. Their locks are taken in this order: the index, a queue, a query, the owners.
#[derive(Debug)]
pub struct MemoryBroker {
    limits: MemoryLimits,
    index: Mutex<QueryIndex>,
    kinds: RwLock<HashMap<Arc<str>, Arc<KindState>, RandomState>>,
    deadlines: Deadlines,
    next_number: AtomicU64,
    waiting: Arc<WaitingTotals>,
    owners: Arc<OwnerCounts>,
    closed: AtomicBool,
    arrival: Notify,
    metrics: Arc<QueryMetrics>,
}

#[expect(clippy::unused_async, reason = "the methods that may wait in another broker are async in all of them")]
impl MemoryBroker {
    #[must_use]
    pub fn new(limits: MemoryLimits, metrics: Arc<QueryMetrics>) -> Self {
        Self {
            index: Mutex::default(),
            kinds: RwLock::default(),
            deadlines: Deadlines::default(),
            next_number: AtomicU64::new(1),
            waiting: Arc::default(),
            owners: Arc::new(OwnerCounts::new(&limits)),
            closed: AtomicBool::new(false),
            arrival: Notify::new(),
            metrics,
            limits,
        }
    }

    fn kind_state(&self, kind: &str) -> Option<Arc<KindState>> {
        self.kinds.read().get(kind).cloned()
    }

    fn kind_state_or_create(&self, kind: &Arc<str>) -> Arc<KindState> {
        if let Some(kind_state) = self.kind_state(kind) {
            return kind_state;
        }
        let (waiting, owners) = (self.waiting.clone(), self.owners.clone());
        let new = || Arc::new(KindState::new(&self.limits, waiting, owners, self.metrics.kind(kind)));
        self.kinds.write().entry(kind.clone()).or_insert_with(new).clone()
    }

    fn find(&self, id: &QueryId) -> Result<Arc<Entry>, NoSuchQuery> {
        self.index.lock().get(id).ok_or_else(|| NoSuchQuery(id.clone()))
    }

    pub(super) async fn submit(&self, query: NewQuery) -> Result<Submitted, SubmitError> {
        self.accept(query, None, Instant::now())
    }

    pub(super) async fn claim(self: &Arc<Self>, claimant: Claimant<'_>) -> Result<Option<Claim>, Unavailable> {
        Ok(self.claim_at(claimant, Instant::now()))
    }

    pub(super) async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelOutcome, QueryError> {
        Ok(self.cancel_entry(self.find(id)?, reason))
    }

    pub(super) async fn read(self: &Arc<Self>, id: &QueryId, from: u64) -> Result<EventReader, QueryError> {
        Ok(EventReader::Memory(MemoryReader::new(self.clone(), self.find(id)?, from)))
    }

    pub(super) async fn get(&self, id: &QueryId) -> Result<QueryInfo, QueryError> {
        Ok(self.find(id)?.info())
    }

    pub(super) async fn list(&self, filter: &QueryFilter, page: Page) -> Result<QueryPage, Unavailable> {
        Ok(self.index.lock().list(filter, page))
    }

    pub(super) async fn dead_letters(&self, kind: Option<&str>, page: Page) -> Result<DeadLetterPage, Unavailable> {
        Ok(self.index.lock().dead_letters(kind, page))
    }

    pub(super) async fn dead_letter(&self, id: &QueryId) -> Result<DeadLetter, DeadLetterError> {
        let entry = self.index.lock().dead_letter(id);
        entry.and_then(|entry| entry.dead_letter()).ok_or_else(|| NoSuchDeadLetter(id.clone()).into())
    }

    pub(super) async fn requeue(&self, id: &QueryId, new_id: QueryId) -> Result<(), DeadLetterError> {
        let entry = self.index.lock().dead_letter(id).ok_or_else(|| NoSuchDeadLetter(id.clone()))?;
        let spec = entry.meta.spec.clone();
        let lane = entry.meta.lane.clone();
        let again = NewQuery { id: new_id.clone(), spec, deadline: None, abandon_after: None, lane, trace: None };
        self.accept(again, Some(id.clone()), Instant::now())?;
        entry.record_requeue(new_id);
        self.index.lock().on_requeued(Instant::now(), &entry);
        Ok(())
    }

    pub(super) async fn purge(&self, id: &QueryId) -> Result<(), DeadLetterError> {
        let purged = self.index.lock().purge(id).ok_or_else(|| NoSuchDeadLetter(id.clone()))?;
        Self::uncount(&[purged]);
        Ok(())
    }

    pub(super) fn hold_lane(&self, kind: &str, lane: &Arc<str>, worker: WorkerId) -> bool {
        let kind_state = self.kind_state_or_create(&kind.into());
        let held = kind_state.queue.hold_lane(lane, worker);
        self.wake_if_needed(&kind_state);
        held
    }

    pub(super) fn release_lanes(&self, kind: &str, worker: WorkerId, lane: Option<&str>) {
        if self.kind_state(kind).is_some_and(|kind_state| kind_state.queue.release_lanes(worker, lane)) {
            self.arrival.notify_one();
        }
    }

    pub(super) fn lane_holder(&self, kind: &str, lane: &str) -> Option<WorkerId> {
        self.kind_state(kind)?.queue.lane_holder(lane)
    }

    pub(super) fn open_count(&self, kind: &str) -> usize {
        self.kinds.read().get(kind).map_or(0, |kind_state| kind_state.queue.open_count())
    }

    pub(super) fn has_query_for(&self, kind: &str, worker: WorkerId) -> bool {
        self.kind_state(kind).is_some_and(|kind_state| kind_state.queue.has_query_for(worker))
    }

    pub(super) fn demand(&self, kind: &str, lanes: usize) -> Demand {
        let Some(kind_state) = self.kind_state(kind) else { return Demand::default() };
        Demand { waiting: kind_state.waiting_count(), ..kind_state.queue.demand(lanes) }
    }

    pub(super) async fn reject(&self, id: &QueryId, reason: RejectReason, message: &str) -> bool {
        self.find(id).is_ok_and(|entry| self.reject_entry(&entry, reason, message))
    }

    pub(super) async fn reject_waiting(&self, kind: &str, reason: RejectReason, message: &str) -> usize {
        let Some(kind_state) = self.kind_state(kind) else { return 0 };
        let waiting = kind_state.queue.drain();
        waiting.iter().filter(|entry| self.reject_entry(entry, reason, message)).count()
    }

    pub(super) fn unfinished_count(&self) -> usize {
        self.kinds.read().values().map(|kind_state| kind_state.unfinished_count()).sum()
    }

    pub(super) fn unfinished_count_of(&self, kind: &str) -> usize {
        self.kind_state(kind).map_or(0, |kind_state| kind_state.unfinished_count())
    }

    pub(super) fn waiting_count(&self, kind: &str) -> usize {
        self.kinds.read().get(kind).map_or(0, |kind_state| kind_state.waiting_count())
    }

    pub(super) fn oldest_waiting(&self, kind: &str) -> Option<Instant> {
        self.kind_state(kind)?.queue.oldest_waiting()
    }

    pub(super) fn state_counts(&self) -> Vec<(Arc<str>, QueryState, usize)> {
        let kinds = self.kinds.read();
        let count = |(kind, kind_state): (&Arc<str>, &Arc<KindState>)| {
            QueryState::ALL.iter().map(|state| (kind.clone(), *state, kind_state.count(*state))).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(count).collect()
    }

    pub(super) async fn wait_for_arrival(&self) {
        self.arrival.notified().await;
    }

    pub(super) async fn run(&self, stop: CancellationToken) {
        loop {
            let next = self.expire(Instant::now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(next.into()) => {}
                () = self.deadlines.wait_for_new() => {}
            }
        }
    }

    pub(super) async fn close(&self) -> usize {
        self.closed.store(true, SeqCst);
        let kinds: Vec<_> = self.kinds.read().values().cloned().collect();
        let waiting = kinds.iter().flat_map(|kind_state| kind_state.queue.drain());
        let rejected = waiting.filter(|entry| self.reject_entry(entry, RejectReason::Shutdown, STOPPED)).count();
        // Queries that wait for their retry are in no queue.
        let backing_off = self.index.lock().unfinished();
        rejected + backing_off.iter().filter(|entry| self.reject_entry(entry, RejectReason::Shutdown, STOPPED)).count()
    }
}
