//! One query of the memory broker: its state, its log, and who holds it, changed only under its own lock.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    broker::{CancelFound, LeaseLost, Order, Output, QueryInfo},
    model::{Event, EventBody, Outcome, QueryId, QuerySpec, Rung, WorkerId},
    state::{self, QueryState},
};

use super::{
    log::{Log, LogLimits},
    tally::KindTally,
};

/// The most events a reader takes at once, so that one lock is never held for long.
const READ_BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Entry {
    pub id: QueryId,
    /// Order of arrival, never reused.
    pub number: u64,
    pub spec: QuerySpec,
    pub submitted: Instant,
    pub submitted_at: SystemTime,
    /// The client's own deadline.
    pub deadline: Option<Instant>,
    abandon_after: Option<Duration>,
    pub(super) tally: Arc<KindTally>,
    limits: LogLimits,
    record: Mutex<Record>,
    /// Wakes the readers: once for each batch.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct Record {
    state: QueryState,
    log: Log,
    attempts: u32,
    holder: Option<Holder>,
    cancel: Option<Arc<str>>,
    worker: Option<WorkerId>,
    readers: usize,
    /// Since when nobody reads it, if someone did.
    unread_since: Option<Instant>,
    started_at: Option<SystemTime>,
    ended_at: Option<SystemTime>,
}

/// Who runs the query now. The token is what fences off everyone who ran it before.
#[derive(Debug)]
struct Holder {
    token: u64,
    orders: watch::Sender<Order>,
}

/// What a claimant gets.
#[derive(Debug)]
pub(super) struct Held {
    pub token: u64,
    pub attempt: u32,
    pub orders: watch::Receiver<Order>,
}

/// Everything fixed about a query when it arrives.
#[derive(Debug)]
pub(super) struct Arrival {
    pub id: QueryId,
    pub number: u64,
    pub spec: QuerySpec,
    pub deadline: Option<Instant>,
    pub abandon_after: Option<Duration>,
    pub tally: Arc<KindTally>,
    pub limits: LogLimits,
}

impl Entry {
    pub(super) fn new(arrival: Arrival) -> Self {
        arrival.tally.entered(QueryState::Pending);
        Self {
            id: arrival.id,
            number: arrival.number,
            spec: arrival.spec,
            submitted: Instant::now(),
            submitted_at: SystemTime::now(),
            deadline: arrival.deadline,
            abandon_after: arrival.abandon_after,
            tally: arrival.tally,
            limits: arrival.limits,
            record: Mutex::new(Record {
                state: QueryState::Pending,
                log: Log::default(),
                attempts: 0,
                holder: None,
                cancel: None,
                worker: None,
                readers: 0,
                unread_since: None,
                started_at: None,
                ended_at: None,
            }),
            changed: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> QueryState {
        self.record.lock().state
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state() == QueryState::Pending
    }

    /// When a waiting query is to be given up, if ever.
    pub(super) fn expires(&self) -> Option<Instant> {
        let queue = self.spec.queue_timeout.and_then(|limit| self.submitted.checked_add(limit));
        match (queue, self.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the query if it still waits.
    pub(super) fn claim(&self, worker: WorkerId) -> Option<Held> {
        let mut record = self.record.lock();
        if record.state != QueryState::Pending {
            return None;
        }
        self.step(&mut record, QueryState::Processing);
        record.attempts += 1;
        record.worker = Some(worker);
        record.started_at.get_or_insert_with(SystemTime::now);
        let token = fastrand::u64(..);
        let (orders, receiver) = watch::channel(Order::Run);
        record.holder = Some(Holder { token, orders });
        Some(Held { token, attempt: record.attempts, orders: receiver })
    }

    /// Undoes a claim whose query no worker has seen. If it was cancelled in between, it ends here.
    pub(super) fn release(&self, token: u64) -> Released {
        let mut record = self.record.lock();
        if record.check(token).is_err() {
            return Released::NotOurs;
        }
        record.holder = None;
        record.attempts -= 1;
        record.worker = None;
        if record.attempts == 0 {
            record.started_at = None;
        }
        if let Some(reason) = record.cancel.take() {
            self.end(&mut record, Outcome::Cancelled { reason: (*reason).into(), rung: Rung::Queued });
            return Released::Ended;
        }
        self.step(&mut record, QueryState::RetryPending);
        self.step(&mut record, QueryState::Pending);
        Released::Waiting
    }

    pub(super) fn append(&self, token: u64, outputs: Vec<Output>) -> Result<(), LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        self.push(&mut record, outputs);
        drop(record);
        self.changed.notify_waiters();
        Ok(())
    }

    pub(super) fn finish(&self, token: u64, outputs: Vec<Output>, outcome: Outcome) -> Result<QueryState, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        self.push(&mut record, outputs);
        record.holder = None;
        let outcome = match (record.cancel.take(), outcome) {
            (Some(_), cancelled @ Outcome::Cancelled { .. }) => cancelled,
            // The worker ended the query by itself after the cancel was accepted: the caller was told otherwise.
            (Some(reason), _) => Outcome::Cancelled { reason: (*reason).into(), rung: Rung::CancelFrame },
            (None, outcome) => outcome,
        };
        let state = outcome.state();
        self.end(&mut record, outcome);
        Ok(state)
    }

    pub(super) fn cancel(&self, reason: &str) -> CancelFound {
        let mut record = self.record.lock();
        let state = record.state;
        if state.is_terminal() {
            return CancelFound::Ended(state);
        }
        if record.cancel.is_some() {
            return CancelFound::Cancelling(state);
        }
        let Some(holder) = &record.holder else {
            self.end(&mut record, Outcome::Cancelled { reason: reason.into(), rung: Rung::Queued });
            return CancelFound::Queued;
        };
        let reason: Arc<str> = reason.into();
        holder.orders.send_replace(Order::Cancel { reason: reason.clone() });
        record.cancel = Some(reason);
        CancelFound::Running(state)
    }

    /// Ends the query with `outcome` if it still waits.
    pub(super) fn end_waiting(&self, outcome: Outcome) -> bool {
        let mut record = self.record.lock();
        let waits = record.state == QueryState::Pending;
        if waits {
            self.end(&mut record, outcome);
        }
        waits
    }

    pub(super) fn attach_reader(&self) {
        let mut record = self.record.lock();
        record.readers += 1;
        record.unread_since = None;
    }

    /// Says when the query is to be looked at again because its last reader left.
    pub(super) fn detach_reader(&self, now: Instant) -> Option<Instant> {
        let mut record = self.record.lock();
        record.readers -= 1;
        if record.readers > 0 || record.state.is_terminal() {
            return None;
        }
        record.unread_since = Some(now);
        self.abandon_after.and_then(|patience| now.checked_add(patience))
    }

    /// Whether nobody has read the query for as long as it may go unread.
    pub(super) fn is_abandoned(&self, now: Instant) -> bool {
        let unread_since = self.record.lock().unread_since;
        let is_over = |since: Instant, patience| now.duration_since(since) >= patience;
        unread_since.zip(self.abandon_after).is_some_and(|(since, patience)| is_over(since, patience))
    }

    /// The next events from `from` on; `None` while there are none yet.
    pub(super) fn read(&self, from: u64) -> Option<Vec<Event>> {
        let record = self.record.lock();
        let events = record.log.read(from, READ_BATCH);
        (!events.is_empty() || record.state.is_terminal()).then_some(events)
    }

    /// The last event of an ended query.
    pub(super) fn final_event(&self) -> Option<Event> {
        let record = self.record.lock();
        record.log.read(record.log.next().saturating_sub(1), 1).pop()
    }

    pub(super) fn info(&self) -> QueryInfo {
        let record = self.record.lock();
        QueryInfo {
            id: self.id.clone(),
            kind: self.spec.kind.clone(),
            query_type: self.spec.query_type.clone(),
            priority: self.spec.priority,
            owner: self.spec.owner.clone(),
            key: self.spec.key.clone(),
            state: record.state,
            attempts: record.attempts,
            worker: record.worker,
            submitted_at: self.submitted_at,
            started_at: record.started_at,
            ended_at: record.ended_at,
            first_sequence: record.log.first(),
            next_sequence: record.log.next(),
        }
    }

    fn push(&self, record: &mut Record, outputs: Vec<Output>) {
        let at = SystemTime::now();
        let attempt = record.attempts;
        for output in outputs {
            let body = match output {
                Output::Session(session_id) => EventBody::Session { session_id },
                Output::Message(content) => {
                    if record.state == QueryState::Processing {
                        self.step(record, QueryState::Streaming);
                    }
                    EventBody::Message { content }
                }
            };
            record.log.push(attempt, at, body, self.limits);
        }
    }

    /// The only way to a final state, so that there is exactly one final event.
    fn end(&self, record: &mut Record, outcome: Outcome) {
        let at = SystemTime::now();
        self.step(record, outcome.state());
        record.ended_at = Some(at);
        record.log.push(record.attempts, at, EventBody::Ended(outcome), self.limits);
        self.changed.notify_waiters();
    }

    fn step(&self, record: &mut Record, to: QueryState) {
        state::transition(record.state, to).expect("the broker makes only legal transitions");
        self.tally.moved(record.state, to);
        record.state = to;
    }
}

/// What became of a query that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released {
    Waiting,
    Ended,
    NotOurs,
}

impl Record {
    fn check(&self, token: u64) -> Result<(), LeaseLost> {
        match &self.holder {
            Some(holder) if holder.token == token => Ok(()),
            _ => Err(LeaseLost),
        }
    }
}
