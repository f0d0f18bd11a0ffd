//! The broker that keeps everything in memory: fast, and gone with the process.

mod entry;
mod index;
mod lease;
mod log;
mod queue;
mod reader;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::QueryMetrics,
    model::{Outcome, QueryId, RejectReason},
    state::{QueryState, State},
};

use super::{
    Broker, CancelFound, Claim, Claimant, EventReader, NewQuery, NoSuchQuery, Page, QueryFilter, QueryInfo, QueryPage,
    SubmitError, Submitted,
};
use entry::{Arrival, Entry};
use index::Index;
use lease::MemoryLease;
use log::LogLimits;
use reader::MemoryReader;
use tally::KindTally;

/// How often the chores run when no deadline calls earlier.
const CHORES_EVERY: Duration = Duration::from_secs(1);

const STOPPED: &str = "the server stopped before a worker was free";

/// The bounds of what is kept.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// Queries that may wait.
    pub max_queries: usize,
    /// Events and bytes of one query's log.
    pub max_events: usize,
    pub max_bytes: usize,
    /// How long, and how many, ended queries are kept.
    pub retention: Duration,
    pub max_ended: usize,
}

#[derive(Debug, Clone)]
pub struct MemoryBroker(Arc<Store>);

#[derive(Debug)]
struct Store {
    limits: MemoryLimits,
    index: Mutex<Index>,
    kinds: RwLock<HashMap<Arc<str>, Arc<KindTally>>>,
    /// When queries are to be looked at. Weak: a query that ended early is not kept alive by its deadline.
    deadlines: Mutex<BTreeMap<(Instant, u64), Weak<Entry>>>,
    next_number: AtomicU64,
    waiting: AtomicUsize,
    closed: AtomicBool,
    arrival: Notify,
    new_deadline: Notify,
    metrics: Arc<QueryMetrics>,
}

impl MemoryBroker {
    #[must_use]
    pub fn new(limits: MemoryLimits, metrics: Arc<QueryMetrics>) -> Self {
        Self(Arc::new(Store {
            limits,
            index: Mutex::default(),
            kinds: RwLock::default(),
            deadlines: Mutex::default(),
            next_number: AtomicU64::new(1),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            arrival: Notify::new(),
            new_deadline: Notify::new(),
            metrics,
        }))
    }
}

impl Store {
    fn find(&self, id: &QueryId) -> Result<Arc<Entry>, NoSuchQuery> {
        self.index.lock().get(id).ok_or_else(|| NoSuchQuery(id.clone()))
    }

    fn kind(&self, kind: &Arc<str>) -> Arc<KindTally> {
        if let Some(tally) = self.kinds.read().get(kind) {
            return tally.clone();
        }
        self.kinds.write().entry(kind.clone()).or_default().clone()
    }

    fn admit(&self) -> Result<(), SubmitError> {
        if self.closed.load(Relaxed) {
            return Err(SubmitError::Closed);
        }
        let limit = self.limits.max_queries;
        let waiting = self.waiting.load(Relaxed);
        if waiting >= limit {
            return Err(SubmitError::QueueFull { waiting, limit });
        }
        Ok(())
    }

    fn submit(&self, query: NewQuery) -> Result<Submitted, SubmitError> {
        let tally = self.kind(&query.spec.kind);
        let mut index = self.index.lock();
        if let Some(known) = index.get(&query.id) {
            drop(index);
            return if known.spec == query.spec {
                Ok(Submitted { state: known.state(), existed: true })
            } else {
                Err(SubmitError::Conflict { id: query.id })
            };
        }
        self.admit()?;
        let entry = Arc::new(Entry::new(Arrival {
            id: query.id,
            number: self.next_number.fetch_add(1, Relaxed),
            spec: query.spec,
            deadline: query.deadline.and_then(|left| Instant::now().checked_add(left)),
            abandon_after: query.abandon_after,
            tally: tally.clone(),
            limits: LogLimits { events: self.limits.max_events, bytes: self.limits.max_bytes },
        }));
        self.waiting.fetch_add(1, Relaxed);
        index.insert(&entry);
        drop(index);
        self.watch_deadline(&entry);
        tally.queue.push(entry.clone(), tally.waiting());
        if self.closed.load(SeqCst) && self.reject(&entry, RejectReason::Shutdown, STOPPED) {
            // It closed in between, and may have looked at the queue before this one was in it.
            return Ok(Submitted { state: QueryState::Rejected, existed: false });
        }
        Ok(Submitted { state: QueryState::Pending, existed: false })
    }

    fn watch_deadline(&self, entry: &Arc<Entry>) {
        if let Some(at) = entry.expires() {
            self.look_again(entry, at);
        }
    }

    /// Has the chores look at a query at a certain time.
    fn look_again(&self, entry: &Arc<Entry>, at: Instant) {
        self.deadlines.lock().insert((at, entry.number), Arc::downgrade(entry));
        self.new_deadline.notify_one();
    }

    fn claim(self: &Arc<Self>, claimant: Claimant<'_>) -> Option<Claim> {
        let tally = self.kinds.read().get(claimant.kind).cloned()?;
        while let Some(entry) = tally.queue.pop() {
            let now = Instant::now();
            if entry.expires().is_some_and(|at| at <= now) {
                self.reject_expired(&entry);
                continue;
            }
            let Some(held) = entry.claim(claimant.worker) else { continue };
            self.waiting.fetch_sub(1, Relaxed);
            self.metrics.claimed(&entry.spec.kind, now.duration_since(entry.submitted));
            return Some(Claim {
                spec: entry.spec.clone(),
                attempt: held.attempt,
                deadline: entry.deadline.map(|at| at.saturating_duration_since(now)),
                lease: Box::new(MemoryLease::new(self.clone(), entry, held)),
            });
        }
        None
    }

    /// A claimed query waits again, at its old place in the line.
    fn returned(&self, entry: &Arc<Entry>) {
        self.waiting.fetch_add(1, Relaxed);
        entry.tally.queue.push(entry.clone(), entry.tally.waiting());
        self.arrival.notify_one();
    }

    /// A waiting query has ended without ever being claimed.
    fn left_the_queue(&self, entry: Arc<Entry>) {
        self.waiting.fetch_sub(1, Relaxed);
        self.retire(entry);
    }

    /// Begins the retention of a query that has just ended.
    fn retire(&self, entry: Arc<Entry>) {
        let now = Instant::now();
        self.metrics.ended(&entry.spec.kind, entry.state(), now.duration_since(entry.submitted));
        let forgotten = {
            let mut index = self.index.lock();
            index.ended(now, entry);
            index.forget(now, self.limits.retention, self.limits.max_ended)
        };
        Self::dismiss(&forgotten);
    }

    fn dismiss(forgotten: &[Arc<Entry>]) {
        for entry in forgotten {
            entry.tally.left(entry.state());
        }
    }

    fn reject_expired(&self, entry: &Arc<Entry>) {
        let message = format!(
            "no worker of kind {} was free within {:.1} s, and the query may wait no longer",
            entry.spec.kind,
            entry.submitted.elapsed().as_secs_f64()
        );
        self.reject(entry, RejectReason::Deadline, &message);
    }

    fn reject(&self, entry: &Arc<Entry>, reason: RejectReason, message: &str) -> bool {
        let rejected = entry.end_waiting(Outcome::Rejected { reason, message: message.into() });
        if rejected {
            self.left_the_queue(entry.clone());
        }
        rejected
    }

    /// Something is due for this query: its wait is over, or nobody reads it any more.
    fn look_at(&self, entry: &Arc<Entry>, now: Instant) {
        if entry.expires().is_some_and(|at| at <= now) {
            self.reject_expired(entry);
        }
        if entry.is_abandoned(now) {
            self.cancel(entry.clone(), "nobody was reading its events any more");
        }
    }

    fn cancel(&self, entry: Arc<Entry>, reason: &str) -> CancelFound {
        let found = entry.cancel(reason);
        if found == CancelFound::Queued {
            self.left_the_queue(entry);
        }
        found
    }

    /// Does what is due and says when it wants to be called again.
    fn chores(&self, now: Instant) -> Instant {
        let mut due = Vec::new();
        let next = {
            let mut deadlines = self.deadlines.lock();
            while let Some(first) = deadlines.first_entry() {
                if first.key().0 > now {
                    break;
                }
                due.extend(first.remove().upgrade());
            }
            deadlines.first_key_value().map(|((at, _), _)| *at)
        };
        for entry in due {
            self.look_at(&entry, now);
        }
        let forgotten = self.index.lock().forget(now, self.limits.retention, self.limits.max_ended);
        Self::dismiss(&forgotten);
        let regular = now + CHORES_EVERY;
        next.map_or(regular, |at| at.min(regular))
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn submit(&self, query: NewQuery) -> Result<Submitted, SubmitError> {
        self.0.submit(query)
    }

    async fn claim(&self, claimant: Claimant<'_>) -> Option<Claim> {
        self.0.claim(claimant)
    }

    async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelFound, NoSuchQuery> {
        Ok(self.0.cancel(self.0.find(id)?, reason))
    }

    async fn read(&self, id: &QueryId, from: u64) -> Result<Box<dyn EventReader>, NoSuchQuery> {
        Ok(Box::new(MemoryReader::new(self.0.clone(), self.0.find(id)?, from)))
    }

    async fn get(&self, id: &QueryId) -> Result<QueryInfo, NoSuchQuery> {
        Ok(self.0.find(id)?.info())
    }

    async fn list(&self, filter: &QueryFilter, page: Page) -> QueryPage {
        self.0.index.lock().list(filter, page)
    }

    fn waiting(&self, kind: &str) -> usize {
        self.0.kinds.read().get(kind).map_or(0, |tally| tally.waiting())
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
        waiting.filter(|entry| self.0.reject(entry, RejectReason::Shutdown, STOPPED)).count()
    }
}
