//! One query of the memory broker: its state, its log, and who holds it, changed only under its own lock.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tokio::sync::{Notify, watch};

use crate::{
    broker::{CancelFound, DeadLetter, Ending, LeaseLost, Order, Output, QueryInfo},
    model::{Event, EventBody, FailureReason, Outcome, QueryId, Retrying, Rung, WorkerId},
    state::{self, QueryState},
    sync::Mutex,
};

use super::{
    queue::{Spot, Ticket},
    record::{Arrival, Finished, Held, Holder, Record, Released, Room},
};

/// The most events a reader takes at once, so that one lock is never held for long.
const READ_BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Entry {
    pub fixed: Arrival,
    pub submitted: Instant,
    submitted_at: SystemTime,
    /// Where it stands in its kind's queue.
    pub spot: Spot,
    record: Mutex<Record>,
    /// Wakes the readers: once for each batch.
    pub(super) changed: Notify,
    /// Wakes whoever waits for readers to come along.
    pub(super) room: Notify,
}

impl Entry {
    pub(super) fn new(fixed: Arrival, now: Instant) -> Self {
        fixed.tally.entered(QueryState::Pending);
        fixed.tally.owners.entered(fixed.spec.owner.as_deref(), QueryState::Pending);
        Self {
            fixed,
            submitted: now,
            submitted_at: SystemTime::now(),
            spot: Spot::default(),
            record: Mutex::new(Record::new()),
            changed: Notify::new(),
            room: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> QueryState {
        self.record.lock().state
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state() == QueryState::Pending
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.fixed.spec.owner.as_deref()
    }

    /// Whether no worker has had it yet.
    pub(super) fn is_untried(&self) -> bool {
        self.record.lock().tries.attempt == 0
    }

    /// The place in line that it had when it was claimed last.
    pub(super) fn ticket(&self) -> Ticket {
        self.record.lock().ticket
    }

    pub(super) fn is_dead_letter(&self) -> bool {
        self.record.lock().dead_letter
    }

    /// When a waiting query is to be given up, if ever. The time in the queue counts until a worker first had it.
    pub(super) fn expires(&self) -> Option<Instant> {
        let queue = self.fixed.spec.queue_timeout.and_then(|limit| self.submitted.checked_add(limit));
        let queue = queue.filter(|_| self.record.lock().tries.attempt == 0);
        match (queue, self.fixed.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the query if it still waits, counting an attempt.
    pub(super) fn claim(&self, worker: WorkerId, ticket: Ticket) -> Option<Held> {
        let mut record = self.record.lock();
        if record.state != QueryState::Pending {
            return None;
        }
        self.step(&mut record, QueryState::Processing);
        record.tries.attempt += 1;
        record.worker = Some(worker);
        record.ticket = ticket;
        record.started_at.get_or_insert_with(SystemTime::now);
        let token = fastrand::u64(..);
        let (orders, receiver) = watch::channel(Order::Run);
        record.holder = Some(Holder { token, orders });
        Some(Held { token, tries: record.tries, orders: receiver })
    }

    /// Undoes a claim whose query no worker has seen. If it was cancelled in between, it ends here.
    pub(super) fn release(&self, token: u64) -> Released {
        let mut record = self.record.lock();
        if record.check(token).is_err() {
            return Released::NotOurs;
        }
        record.holder = None;
        record.tries.attempt -= 1;
        record.worker = None;
        if record.tries.attempt == 0 {
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

    /// Moves as much output to the log as there is room for. True if all of it was.
    pub(super) fn append(&self, token: u64, outputs: &mut Vec<Output>, room: Room) -> Result<bool, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        let mut rest = std::mem::take(outputs).into_iter();
        while let Some(output) = rest.next() {
            if room == Room::Respect && self.is_full(&record, output.weight()) {
                outputs.push(output);
                outputs.extend(rest);
                break;
            }
            self.push(&mut record, output);
        }
        drop(record);
        self.changed.notify_waiters();
        Ok(outputs.is_empty())
    }

    /// Whether someone is behind who would miss events if this were added.
    pub(super) fn has_laggard(&self, output: &Output) -> bool {
        self.is_full(&self.record.lock(), output.weight())
    }

    pub(super) fn finish(&self, token: u64, outputs: Vec<Output>, ending: Ending) -> Result<Finished, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        for output in outputs {
            self.push(&mut record, output);
        }
        record.holder = None;
        let cancelled = record.cancel.take();
        let finished = match (cancelled, ending) {
            (_, Ending::Over { outcome: outcome @ Outcome::Cancelled { .. }, .. }) => self.over(&mut record, outcome),
            // The attempt ended by itself after the cancel was accepted: the caller was told otherwise.
            (Some(reason), _) => {
                self.over(&mut record, Outcome::Cancelled { reason: (*reason).into(), rung: Rung::CancelFrame })
            }
            (None, Ending::Over { outcome, dead_letter }) => {
                if let Outcome::Error(failure) = &outcome {
                    record.failed((**failure).clone());
                }
                record.dead_letter = dead_letter;
                self.over(&mut record, outcome)
            }
            (None, Ending::Retry(retrying)) => self.retry(&mut record, retrying),
        };
        drop(record);
        self.changed.notify_waiters();
        Ok(finished)
    }

    fn over(&self, record: &mut Record, outcome: Outcome) -> Finished {
        let state = outcome.state();
        self.end(record, outcome);
        Finished::Over(state)
    }

    fn retry(&self, record: &mut Record, retrying: Retrying) -> Finished {
        match retrying.failure.reason {
            FailureReason::Reported => record.tries.reported += 1,
            _ => record.tries.died += 1,
        }
        record.failed(retrying.failure.clone());
        let at = Instant::now() + retrying.delay;
        let event = EventBody::Retrying(Box::new(retrying));
        record.log.push(record.tries.attempt, SystemTime::now(), event, self.fixed.limits);
        self.step(record, QueryState::RetryPending);
        record.retry_at = Some(at);
        Finished::RetryAt(at)
    }

    /// Lets a query whose retry is due wait for a worker again. True if it does now.
    pub(super) fn requeue_due(&self, now: Instant) -> bool {
        let mut record = self.record.lock();
        let due = record.retry_at.is_some_and(|at| at <= now) && record.state == QueryState::RetryPending;
        if due {
            record.retry_at = None;
            self.step(&mut record, QueryState::Pending);
        }
        due
    }

    pub(super) fn cancel(&self, reason: &str) -> CancelFound {
        self.cancel_locked(&mut self.record.lock(), reason)
    }

    /// Cancels the query if nobody has read it for as long as it may go unread.
    pub(super) fn cancel_if_abandoned(&self, now: Instant, reason: &str) -> Option<CancelFound> {
        let patience = self.fixed.abandon_after?;
        let mut record = self.record.lock();
        record.readers.gone_for(patience, now).then(|| self.cancel_locked(&mut record, reason))
    }

    fn cancel_locked(&self, record: &mut Record, reason: &str) -> CancelFound {
        let state = record.state;
        if state.is_terminal() {
            return CancelFound::Ended(state);
        }
        if record.cancel.is_some() {
            return CancelFound::Cancelling(state);
        }
        let Some(holder) = &record.holder else {
            self.end(record, Outcome::Cancelled { reason: reason.into(), rung: Rung::Queued });
            return CancelFound::Queued;
        };
        let reason: Arc<str> = reason.into();
        holder.orders.send_replace(Order::Cancel { reason: reason.clone() });
        record.cancel = Some(reason);
        CancelFound::Running(state)
    }

    /// Ends the query with `outcome` if no worker has it.
    pub(super) fn end_waiting(&self, outcome: Outcome) -> bool {
        let mut record = self.record.lock();
        if record.state == QueryState::RetryPending {
            self.step(&mut record, QueryState::Pending);
        }
        let waits = record.state == QueryState::Pending;
        if waits {
            self.end(&mut record, outcome);
        }
        waits
    }

    pub(super) fn attach_reader(&self, from: u64) -> u64 {
        self.record.lock().readers.attach(from)
    }

    /// Says when the query is to be looked at again because its last reader left.
    pub(super) fn detach_reader(&self, reader: u64, now: Instant) -> Option<Instant> {
        let mut record = self.record.lock();
        record.readers.detach(reader, now);
        let unread = record.readers.is_empty() && !record.state.is_terminal();
        drop(record);
        self.room.notify_waiters();
        self.fixed.abandon_after.filter(|_| unread).and_then(|patience| now.checked_add(patience))
    }

    /// The next events from `from` on; `None` while there are none yet.
    pub(super) fn read(&self, reader: u64, from: u64) -> Option<Vec<Event>> {
        let mut record = self.record.lock();
        let events = record.log.read(from, READ_BATCH);
        if let Some(last) = events.last() {
            record.readers.moved(reader, last.sequence + 1);
            drop(record);
            self.room.notify_waiters();
            return Some(events);
        }
        record.state.is_terminal().then_some(events)
    }

    /// The last event of an ended query.
    pub(super) fn final_event(&self) -> Option<Event> {
        let record = self.record.lock();
        record.log.read(record.log.next().saturating_sub(1), 1).pop()
    }

    pub(super) fn info(&self) -> QueryInfo {
        self.describe(&self.record.lock())
    }

    /// The query as a dead letter, if it is one.
    pub(super) fn dead_letter(&self) -> Option<DeadLetter> {
        let record = self.record.lock();
        record.dead_letter.then(|| DeadLetter {
            query: self.describe(&record),
            payload: self.fixed.spec.payload.clone(),
            failures: record.failures.clone(),
        })
    }

    /// The dead letter lives again under another id, and is a plain ended query from now on.
    pub(super) fn requeued_as(&self, id: QueryId) {
        let mut record = self.record.lock();
        record.dead_letter = false;
        record.requeued_as = Some(id);
    }

    fn describe(&self, record: &Record) -> QueryInfo {
        let spec = &self.fixed.spec;
        QueryInfo {
            id: self.fixed.id.clone(),
            kind: spec.kind.clone(),
            query_type: spec.query_type.clone(),
            priority: spec.priority,
            owner: spec.owner.clone(),
            key: spec.key.clone(),
            state: record.state,
            attempts: record.tries.attempt,
            worker: record.worker,
            submitted_at: self.submitted_at,
            started_at: record.started_at,
            ended_at: record.ended_at,
            first_sequence: record.log.first(),
            next_sequence: record.log.next(),
            dead_letter: record.dead_letter,
            requeued_from: self.fixed.requeued_from.clone(),
            requeued_as: record.requeued_as.clone(),
        }
    }

    /// Whether an event of this weight would push out what someone has not read yet.
    fn is_full(&self, record: &Record, weight: usize) -> bool {
        let first = record.log.first_after(weight, self.fixed.limits);
        first > record.log.first() && record.readers.wants(first - 1)
    }

    fn push(&self, record: &mut Record, output: Output) {
        let body = match output {
            Output::Session(session_id) => EventBody::Session { session_id },
            Output::Message(content) => {
                if record.state == QueryState::Processing {
                    self.step(record, QueryState::Streaming);
                }
                EventBody::Message { content }
            }
        };
        record.log.push(record.tries.attempt, SystemTime::now(), body, self.fixed.limits);
    }

    /// The only way to a final state, so that there is exactly one final event.
    fn end(&self, record: &mut Record, outcome: Outcome) {
        let at = SystemTime::now();
        self.step(record, outcome.state());
        record.ended_at = Some(at);
        record.log.push_last(record.tries.attempt, at, EventBody::Ended(outcome));
        self.changed.notify_waiters();
    }

    fn step(&self, record: &mut Record, to: QueryState) {
        state::transition(record.state, to).expect("the broker makes only legal transitions");
        self.fixed.tally.moved(record.state, to);
        self.fixed.tally.owners.moved(self.owner(), record.state, to);
        record.state = to;
    }
}
