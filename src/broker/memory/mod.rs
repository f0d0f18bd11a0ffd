//! The broker that keeps everything in memory: fast, and gone with the process.

mod arrivals;
mod entry;
mod index;
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
mod store;
mod tally;
#[cfg(test)]
mod tests;
mod view;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Overflow,
    metrics::QueryMetrics,
    model::{QueryId, RejectReason, WorkerId},
    soon::Soon,
    state::{QueryState, State},
    sync::{AtomicBool, AtomicU64, Mutex, RwLock},
};

use super::{
    Broker, CancelFound, Claim, Claimant, DeadLetter, DeadLetterError, DeadLetterPage, Demand, EventReader, NewQuery,
    NoSuchDeadLetter, Page, QueryError, QueryFilter, QueryInfo, QueryPage, SubmitError, Submitted, Unavailable,
};
use index::Keep;
use owners::{OwnerLimits, Owners};
use reader::MemoryReader;
use store::{STOPPED, Store};
use tally::KindTally;

/// The bounds of what is kept.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// Queries that may wait, and bytes of their payloads.
    pub max_queries: usize,
    pub max_waiting_bytes: usize,
    /// Events and bytes of one query's log.
    pub max_events: usize,
    pub max_bytes: usize,
    /// What happens when a log is full and its readers are slow, after the worker has waited this long.
    pub overflow: Overflow,
    pub max_stall: Duration,
    /// How long, how many, and in how many bytes, ended queries are kept.
    pub retention: Duration,
    pub max_ended: usize,
    pub max_ended_bytes: usize,
    /// The same for dead letters.
    pub max_dead: usize,
    pub max_dead_bytes: usize,
    pub max_dead_age: Duration,
    /// After how long a waiting query counts as one priority more urgent. `None`: never.
    pub aging: Option<Duration>,
    /// How many queries of one owner may wait, and run, in all kinds together.
    pub max_queries_per_owner: Option<usize>,
    pub max_running_per_owner: Option<usize>,
}

impl MemoryLimits {
    fn owners(&self) -> OwnerLimits {
        OwnerLimits { waiting: self.max_queries_per_owner, running: self.max_running_per_owner }
    }

    fn keep(&self) -> Keep {
        Keep {
            retention: self.retention,
            max_ended: self.max_ended,
            max_ended_bytes: self.max_ended_bytes,
            max_dead: self.max_dead,
            max_dead_bytes: self.max_dead_bytes,
            max_dead_age: self.max_dead_age,
        }
    }
}

#[derive(Debug, Clone)]
pub struct MemoryBroker(Arc<Store>);

impl MemoryBroker {
    #[must_use]
    pub fn new(limits: MemoryLimits, metrics: Arc<QueryMetrics>) -> Self {
        Self(Arc::new(Store {
            index: Mutex::default(),
            kinds: RwLock::default(),
            deadlines: Mutex::default(),
            next_number: AtomicU64::new(1),
            waiting: Arc::default(),
            owners: Arc::new(Owners::new(limits.owners())),
            closed: AtomicBool::new(false),
            arrival: Notify::new(),
            new_deadline: Notify::new(),
            metrics,
            limits,
        }))
    }

    fn tally(&self, kind: &str) -> Option<Arc<KindTally>> {
        self.0.kinds.read().get(kind).cloned()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    fn submit(&self, query: NewQuery) -> Soon<'_, Result<Submitted, SubmitError>> {
        Soon::now(self.0.submit(query, None, Instant::now()))
    }

    fn claim<'a>(&'a self, claimant: Claimant<'a>) -> Soon<'a, Result<Option<Claim>, Unavailable>> {
        Soon::now(Ok(self.0.claim(claimant, Instant::now())))
    }

    async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelFound, QueryError> {
        Ok(self.0.cancel(self.0.find(id)?, reason))
    }

    fn read<'a>(&'a self, id: &'a QueryId, from: u64) -> Soon<'a, Result<EventReader, QueryError>> {
        let reader = |entry| Box::pin(MemoryReader::new(self.0.clone(), entry, from)) as EventReader;
        Soon::now(self.0.find(id).map(reader).map_err(Into::into))
    }

    async fn get(&self, id: &QueryId) -> Result<QueryInfo, QueryError> {
        Ok(self.0.find(id)?.info())
    }

    async fn list(&self, filter: &QueryFilter, page: Page) -> Result<QueryPage, Unavailable> {
        Ok(self.0.index.lock().list(filter, page))
    }

    async fn dead_letters(&self, kind: Option<&str>, page: Page) -> Result<DeadLetterPage, Unavailable> {
        Ok(self.0.index.lock().dead_letters(kind, page))
    }

    async fn dead_letter(&self, id: &QueryId) -> Result<DeadLetter, DeadLetterError> {
        let entry = self.0.index.lock().dead_letter(id);
        entry.and_then(|entry| entry.dead_letter()).ok_or_else(|| NoSuchDeadLetter(id.clone()).into())
    }

    async fn requeue(&self, id: &QueryId, new_id: QueryId) -> Result<(), DeadLetterError> {
        let entry = self.0.index.lock().dead_letter(id).ok_or_else(|| NoSuchDeadLetter(id.clone()))?;
        let spec = entry.fixed.spec.clone();
        let lane = entry.fixed.lane.clone();
        let again = NewQuery { id: new_id.clone(), spec, deadline: None, abandon_after: None, lane, trace: None };
        self.0.submit(again, Some(id.clone()), Instant::now())?;
        entry.requeued_as(new_id);
        self.0.index.lock().revived(Instant::now(), &entry);
        Ok(())
    }

    async fn purge(&self, id: &QueryId) -> Result<(), DeadLetterError> {
        let purged = self.0.index.lock().purge(id).ok_or_else(|| NoSuchDeadLetter(id.clone()))?;
        Store::dismiss(&[purged]);
        Ok(())
    }

    fn hold(&self, kind: &str, lane: &Arc<str>, worker: WorkerId) -> bool {
        let tally = self.0.kind(&kind.into());
        let held = tally.queue.hold(lane, worker);
        self.0.pass_on_news(&tally);
        held
    }

    fn let_go(&self, kind: &str, worker: WorkerId, lane: Option<&str>) {
        if self.tally(kind).is_some_and(|tally| tally.queue.let_go(worker, lane)) {
            self.0.arrival.notify_one();
        }
    }

    fn holder(&self, kind: &str, lane: &str) -> Option<WorkerId> {
        self.tally(kind)?.queue.holder(lane)
    }

    fn open(&self, kind: &str) -> usize {
        self.0.kinds.read().get(kind).map_or(0, |tally| tally.queue.open())
    }

    fn waits_for(&self, kind: &str, worker: WorkerId) -> bool {
        self.tally(kind).is_some_and(|tally| tally.queue.waits_for(worker))
    }

    fn demand(&self, kind: &str, lanes: usize) -> Demand {
        let Some(tally) = self.tally(kind) else { return Demand::default() };
        Demand { waiting: tally.waiting(), ..tally.queue.demand(lanes) }
    }

    async fn reject(&self, id: &QueryId, reason: RejectReason, message: &str) -> bool {
        self.0.find(id).is_ok_and(|entry| self.0.reject(&entry, reason, message))
    }

    async fn reject_waiting(&self, kind: &str, reason: RejectReason, message: &str) -> usize {
        let Some(tally) = self.tally(kind) else { return 0 };
        let waiting = tally.queue.drain();
        waiting.iter().filter(|entry| self.0.reject(entry, reason, message)).count()
    }

    fn unfinished(&self) -> usize {
        self.0.kinds.read().values().map(|tally| tally.unfinished()).sum()
    }

    fn unfinished_of(&self, kind: &str) -> usize {
        self.tally(kind).map_or(0, |tally| tally.unfinished())
    }

    fn waiting(&self, kind: &str) -> usize {
        self.0.kinds.read().get(kind).map_or(0, |tally| tally.waiting())
    }

    fn oldest(&self, kind: &str) -> Option<Instant> {
        self.tally(kind)?.queue.oldest()
    }

    fn counts(&self) -> Vec<(Arc<str>, QueryState, usize)> {
        let kinds = self.0.kinds.read();
        let count = |(kind, tally): (&Arc<str>, &Arc<KindTally>)| {
            QueryState::ALL.iter().map(|state| (kind.clone(), *state, tally.count(*state))).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(count).collect()
    }

    async fn arrival(&self) {
        self.0.arrival.notified().await;
    }

    async fn run(&self, stop: CancellationToken) {
        loop {
            let next = self.0.chores(Instant::now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(next.into()) => {}
                () = self.0.new_deadline.notified() => {}
            }
        }
    }

    async fn close(&self) -> usize {
        self.0.closed.store(true, SeqCst);
        let kinds: Vec<_> = self.0.kinds.read().values().cloned().collect();
        let waiting = kinds.iter().flat_map(|tally| tally.queue.drain());
        let rejected = waiting.filter(|entry| self.0.reject(entry, RejectReason::Shutdown, STOPPED)).count();
        // Those that wait out a backoff are in no queue.
        let backing_off = self.0.index.lock().unfinished();
        rejected + backing_off.iter().filter(|entry| self.0.reject(entry, RejectReason::Shutdown, STOPPED)).count()
    }
}
