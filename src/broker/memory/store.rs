//! The queries themselves: where they are kept, found, claimed and forgotten. Everything here happens at once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Weak,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use crate::{
    broker::{CancelFound, Claim, Claimant, NewQuery, NoSuchQuery, SubmitError, Submitted},
    metrics::QueryMetrics,
    model::{Outcome, QueryId, QuerySpec, RejectReason},
    state::QueryState,
    sync::{AtomicBool, AtomicU64, Mutex, RwLock},
};

use super::{
    MemoryLimits,
    entry::Entry,
    index::Index,
    lease::MemoryLease,
    owners::Owners,
    queue::{Item, Verdict},
    record::{Arrival, Extras},
    tally::{KindTally, Waiting},
};

/// How often the chores run when no deadline calls earlier.
const CHORES_EVERY: Duration = Duration::from_secs(1);

pub(super) const STOPPED: &str = "the server stopped before a worker was free";

#[derive(Debug)]
pub(super) struct Store {
    pub limits: MemoryLimits,
    pub index: Mutex<Index>,
    pub kinds: RwLock<HashMap<Arc<str>, Arc<KindTally>, RandomState>>,
    /// When queries are to be looked at. Weak: a query that ended early is not kept alive by its deadline.
    pub deadlines: Mutex<BTreeMap<(Instant, u64), Weak<Entry>>>,
    pub next_number: AtomicU64,
    pub waiting: Arc<Waiting>,
    pub owners: Arc<Owners>,
    pub closed: AtomicBool,
    pub arrival: Notify,
    pub new_deadline: Notify,
    pub metrics: Arc<QueryMetrics>,
}

impl Store {
    pub(super) fn find(&self, id: &QueryId) -> Result<Arc<Entry>, NoSuchQuery> {
        self.index.lock().get(id).ok_or_else(|| NoSuchQuery(id.clone()))
    }

    pub(super) fn kind(&self, kind: &Arc<str>) -> Arc<KindTally> {
        if let Some(tally) = self.kinds.read().get(kind) {
            return tally.clone();
        }
        let (waiting, owners) = (self.waiting.clone(), self.owners.clone());
        let new = || Arc::new(KindTally::new(&self.limits, waiting, owners, self.metrics.kind(kind)));
        self.kinds.write().entry(kind.clone()).or_insert_with(new).clone()
    }

    /// Makes room for a query, or says why there is none. The caller retires who had to make room.
    fn admit(&self, spec: &QuerySpec) -> Result<Option<Arc<Entry>>, SubmitError> {
        if self.closed.load(Relaxed) {
            return Err(SubmitError::Closed);
        }
        if let Some(owner) = &spec.owner
            && let Some((waiting, limit)) = self.owners.full(owner)
        {
            return Err(SubmitError::OwnerQueueFull { owner: owner.clone(), waiting, limit });
        }
        match self.fullness(spec.payload.len()) {
            None => Ok(None),
            Some(full) => self.shed_for(spec, &full).map(Some).ok_or(full),
        }
    }

    /// Why no query with a payload of so many bytes may wait with the others. One that waits alone may be of any size.
    fn fullness(&self, payload: usize) -> Option<SubmitError> {
        let (waiting, bytes) = (self.waiting.queries.load(Relaxed), self.waiting.bytes.load(Relaxed));
        let (limit, most) = (self.limits.max_queries, self.limits.max_waiting_bytes);
        if waiting >= limit {
            return Some(SubmitError::QueueFull { waiting, limit });
        }
        let fits = waiting == 0 || bytes.saturating_add(payload) <= most;
        (!fits).then_some(SubmitError::QueueBytesFull { bytes, payload, limit: most })
    }

    /// Whether the queue could take this query in place of that one.
    fn makes_room(&self, victim: &Entry, query: &QuerySpec) -> bool {
        let rest = self.waiting.bytes.load(Relaxed).saturating_sub(victim.payload_bytes());
        rest == 0 || rest.saturating_add(query.payload.len()) <= self.limits.max_waiting_bytes
    }

    /// Ends the newest query of the worst priority, if that is worse than this one's and makes room enough.
    fn shed_for(&self, query: &QuerySpec, full: &SubmitError) -> Option<Arc<Entry>> {
        let priority = query.priority;
        loop {
            let kinds = self.kinds.read();
            let candidates = kinds.values().filter_map(|tally| tally.queue.newest_of_worst());
            let victim = candidates.max_by_key(|entry| (entry.fixed.spec.priority, entry.fixed.number))?;
            drop(kinds);
            let worse = victim.fixed.spec.priority;
            if worse <= priority || !self.makes_room(&victim, query) {
                return None;
            }
            let message = format!("pushed out by a query of priority {priority}, its own is {worse}: {full}");
            let shed = victim.end_waiting(Outcome::Rejected { reason: RejectReason::Shed, message: message.into() });
            self.leave_line(&victim);
            if shed {
                return Some(victim);
            }
        }
    }

    pub(super) fn submit(
        &self,
        query: NewQuery,
        requeued_from: Option<QueryId>,
        now: Instant,
    ) -> Result<Submitted, SubmitError> {
        let tally = self.kind(&query.spec.kind);
        let mut index = self.index.lock();
        if let Some(known) = index.get(&query.id) {
            drop(index);
            return if known.fixed.spec == query.spec {
                Ok(Submitted { state: known.state(), existed: true })
            } else {
                Err(SubmitError::Conflict { id: query.id })
            };
        }
        let shed = self.admit(&query.spec)?;
        let arrival = Arrival {
            id: query.id,
            number: self.next_number.fetch_add(1, Relaxed),
            spec: query.spec,
            deadline: query.deadline.and_then(|left| now.checked_add(left)),
            abandon_after: query.abandon_after,
            extras: Extras::new(requeued_from, query.trace),
            lane: query.lane,
            tally: tally.clone(),
        };
        let entry = Arc::new(Entry::new(arrival, now));
        index.insert(&entry);
        drop(index);
        if let Some(shed) = shed {
            self.retire(shed, now);
        }
        self.watch_deadline(&entry);
        tally.queue.push(&entry, now);
        if self.closed.load(SeqCst) && self.reject(&entry, RejectReason::Shutdown, STOPPED) {
            // It closed in between, and may have looked at the queue before this one was in it.
            return Ok(Submitted { state: QueryState::Rejected, existed: false });
        }
        Ok(Submitted { state: QueryState::Pending, existed: false })
    }

    pub(super) fn watch_deadline(&self, entry: &Arc<Entry>) {
        if let Some(at) = entry.expires() {
            self.look_again(entry, at);
        }
    }

    /// The wait of a query is over: its deadline is not kept for as long as it would have lasted.
    fn forget_deadline(&self, entry: &Entry, expires: Option<Instant>) {
        if let Some(at) = expires {
            self.deadlines.lock().remove(&(at, entry.fixed.number));
        }
    }

    /// Has the chores look at a query at a certain time.
    pub(super) fn look_again(&self, entry: &Arc<Entry>, at: Instant) {
        self.deadlines.lock().insert((at, entry.fixed.number), Arc::downgrade(entry));
        self.new_deadline.notify_one();
    }

    pub(super) fn claim(self: &Arc<Self>, claimant: Claimant<'_>, now: Instant) -> Option<Claim> {
        let tally = self.kinds.read().get(claimant.kind).cloned()?;
        let (mut late, mut ended) = (Vec::new(), Vec::new());
        let claimed = tally.queue.take(claimant, now, |item| {
            let entry = &item.entry;
            let expires = entry.expires();
            if expires.is_some_and(|at| at <= now) {
                late.push(entry.clone());
                return Verdict::Gone;
            }
            if !self.owners.begin(entry.owner()) {
                return Verdict::SetAside;
            }
            let Some(held) = entry.claim(claimant, item.ticket()) else {
                self.owners.did_not_begin(entry.owner());
                ended.push(entry.clone());
                return Verdict::Gone;
            };
            Verdict::Take((entry.clone(), held, expires))
        });
        self.pass_on_news(&tally);
        for entry in &late {
            self.reject_expired(entry);
        }
        for entry in &ended {
            // It was counted as running for a moment, which another query of its owner may have met.
            self.stopped_running(entry);
        }
        let (entry, mut held, expires) = claimed?;
        self.forget_deadline(&entry, expires);
        tally.metrics.claimed(now.saturating_duration_since(entry.submitted));
        Some(Claim {
            deadline: entry.fixed.deadline.map(|at| at.saturating_duration_since(now)),
            lane: entry.fixed.lane.clone(),
            trace: held.trace.take(),
            lease: Box::new(MemoryLease::new(self.clone(), entry, held)),
        })
    }

    pub(super) fn pass_on_news(&self, tally: &KindTally) {
        if tally.queue.has_news() {
            self.arrival.notify_one();
        }
    }

    /// A query no longer runs: another one of its owner may, of whatever kind.
    pub(super) fn stopped_running(&self, entry: &Entry) {
        let Some(owner) = entry.owner().filter(|_| self.owners.limits_running()) else { return };
        let kinds: Vec<_> = self.kinds.read().values().cloned().collect();
        let back = kinds.iter().filter(|tally| tally.queue.bring_back(owner)).count();
        if back > 0 {
            self.arrival.notify_one();
        }
    }

    /// A query that a worker had waits again, at its old place in the line.
    pub(super) fn waits_again(&self, entry: &Arc<Entry>) {
        entry.fixed.tally.queue.put_back(Item::new(entry.ticket(), entry.clone()));
        self.watch_deadline(entry);
        if self.closed.load(SeqCst) {
            // Nobody will claim it any more.
            self.reject(entry, RejectReason::Shutdown, STOPPED);
        }
        self.arrival.notify_one();
    }

    /// A query waits out its backoff.
    pub(super) fn retry_at(&self, entry: &Arc<Entry>, at: Instant) {
        if at <= Instant::now() {
            self.requeue_due(entry, at);
        } else {
            self.look_again(entry, at);
        }
    }

    pub(super) fn requeue_due(&self, entry: &Arc<Entry>, now: Instant) {
        if entry.requeue_due(now) {
            self.waits_again(entry);
        }
    }

    /// Begins the retention of a query that has just ended.
    pub(super) fn retire(&self, entry: Arc<Entry>, now: Instant) {
        self.forget_deadline(&entry, entry.expires());
        let forgotten = {
            let mut index = self.index.lock();
            index.ended(now, entry);
            index.forget(now, self.limits.keep())
        };
        Self::dismiss(&forgotten);
    }

    /// The same for one that ended while it waited.
    fn retire_waiting(&self, entry: Arc<Entry>) {
        self.leave_line(&entry);
        self.retire(entry, Instant::now());
    }

    fn leave_line(&self, entry: &Entry) {
        if entry.fixed.tally.queue.remove(entry) {
            self.arrival.notify_one();
        }
    }

    pub(super) fn dismiss(forgotten: &[Arc<Entry>]) {
        for entry in forgotten {
            entry.fixed.tally.left(entry.state(), entry.payload_bytes());
        }
    }

    pub(super) fn reject_expired(&self, entry: &Arc<Entry>) {
        let message = format!(
            "no worker of kind {} was free within {:.1} s, and the query may wait no longer",
            entry.fixed.spec.kind,
            entry.submitted.elapsed().as_secs_f64()
        );
        self.reject(entry, RejectReason::Deadline, &message);
    }

    pub(super) fn reject(&self, entry: &Arc<Entry>, reason: RejectReason, message: &str) -> bool {
        let rejected = entry.end_waiting(Outcome::Rejected { reason, message: message.into() });
        if rejected {
            self.retire_waiting(entry.clone());
        }
        rejected
    }

    /// Something is due for this query: its wait is over, or nobody reads it any more.
    pub(super) fn look_at(&self, entry: &Arc<Entry>, now: Instant) {
        if entry.expires().is_some_and(|at| at <= now) {
            self.reject_expired(entry);
        }
        self.requeue_due(entry, now);
        if entry.cancel_if_abandoned(now, "nobody was reading its events any more") == Some(CancelFound::Queued) {
            self.retire_waiting(entry.clone());
        }
    }

    pub(super) fn cancel(&self, entry: Arc<Entry>, reason: &str) -> CancelFound {
        let found = entry.cancel(reason);
        if found == CancelFound::Queued {
            self.retire_waiting(entry);
        }
        found
    }

    /// Does what is due and says when it wants to be called again.
    pub(super) fn chores(&self, now: Instant) -> Instant {
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
        let forgotten = self.index.lock().forget(now, self.limits.keep());
        Self::dismiss(&forgotten);
        let regular = now + CHORES_EVERY;
        next.map_or(regular, |at| at.min(regular))
    }
}
