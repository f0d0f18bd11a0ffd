//! One query of the memory broker: its state, its log, and who holds it, changed only under its own lock.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    broker::{CancelOutcome, Claimant, Ending, LeaseLost, LeaseStatus, Output},
    model::{EventBody, FailureReason, Outcome, Retrying, StopStage},
    state::{self, QueryState},
    sync::Mutex,
    trace::QueryTrace,
};

use super::{
    queue::{Spot, Ticket},
    record::{Arrival, Cancelling, Finished, Held, Holder, Record, Released, Room},
};

#[derive(Debug)]
pub(super) struct Entry {
    pub fixed: Arrival,
    pub submitted: Instant,
    /// The same by the calendar, in nanoseconds since 1970: half of what a `SystemTime` takes, in each of a long queue.
    submitted_at: u64,
    /// Where it stands in its kind's queue.
    pub spot: Spot,
    pub(super) record: Mutex<Record>,
}

impl Entry {
    pub(super) fn new(fixed: Arrival, now: Instant) -> Self {
        fixed.tally.entered(QueryState::Pending, fixed.spec.payload.len());
        fixed.tally.owners.entered(fixed.spec.owner.as_deref(), QueryState::Pending);
        Self {
            fixed,
            submitted: now,
            submitted_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds),
            spot: Spot::default(),
            record: Mutex::new(Record::new()),
        }
    }

    pub(super) fn state(&self) -> QueryState {
        self.record.lock().state
    }

    pub(super) fn submitted_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.submitted_at)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state() == QueryState::Pending
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.fixed.spec.owner.as_deref()
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.fixed.spec.payload.len()
    }

    /// Whether no worker has had it yet.
    pub(super) fn is_untried(&self) -> bool {
        self.record.lock().attempt() == 0
    }

    /// The place in line that it had when it was claimed last.
    pub(super) fn ticket(&self) -> Ticket {
        self.record.lock().story().map(|story| story.ticket).unwrap_or_default()
    }

    pub(super) fn is_dead_letter(&self) -> bool {
        self.record.lock().is_dead_letter()
    }

    /// When a waiting query is to be given up, if ever. The time in the queue counts until a worker first had it.
    pub(super) fn expires(&self) -> Option<Instant> {
        let queue = self.fixed.spec.queue_timeout.and_then(|limit| self.submitted.checked_add(limit));
        let queue = queue.filter(|_| self.is_untried());
        match (queue, self.fixed.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the query if it still waits, counting an attempt.
    pub(super) fn claim(&self, claimant: Claimant<'_>, ticket: Ticket) -> Option<Held> {
        let mut record = self.record.lock();
        if record.state != QueryState::Pending {
            return None;
        }
        self.step(&mut record, QueryState::Processing);
        let story = record.story_mut();
        story.attempts.attempt += 1;
        story.worker = Some(claimant.worker);
        story.ticket = ticket;
        story.started_at.get_or_insert_with(SystemTime::now);
        let token = fastrand::u64(..);
        story.holder = Some(Holder { token, notify: claimant.notify.cloned() });
        let attempts = story.attempts;
        let trace = self.fixed.extras.as_ref().and_then(|extras| extras.trace.lock().as_deref().map(QueryTrace::link));
        Some(Held { token, attempts, trace })
    }

    pub(super) fn lease_status(&self, token: u64) -> LeaseStatus {
        let record = self.record.lock();
        if record.check(token).is_err() {
            return LeaseStatus::Lost;
        }
        let cancel = record.story().and_then(|story| story.cancel.as_ref());
        cancel.map_or(LeaseStatus::Active, |cancel| LeaseStatus::CancelRequested { reason: cancel.reason.clone() })
    }

    /// Undoes a claim whose query no worker has seen. If it was cancelled in between, it ends here.
    pub(super) fn release(&self, token: u64) -> Released {
        let mut record = self.record.lock();
        if record.check(token).is_err() {
            return Released::NotOurs;
        }
        let story = record.story_mut();
        story.holder = None;
        story.attempts.attempt -= 1;
        story.worker = None;
        if story.attempts.attempt == 0 {
            story.started_at = None;
        }
        if let Some(reason) = story.cancel.as_ref().map(|cancel| cancel.reason.clone()) {
            self.end_here(&mut record, Outcome::Cancelled { reason: (*reason).into(), stage: StopStage::Queued });
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
        let at = SystemTime::now();
        let mut rest = Vec::new();
        for output in outputs.drain(..) {
            if rest.is_empty() && (room == Room::Ignore || !self.is_full(&record, &output)) {
                self.push(&mut record, output, at);
                continue;
            }
            for output in output.split() {
                if rest.is_empty() && !self.is_full(&record, &output) {
                    self.push(&mut record, output, at);
                } else {
                    rest.push(output);
                }
            }
        }
        // What is kept of `outputs` is its room for the next batch.
        outputs.append(&mut rest);
        let readers = record.call_readers();
        drop(record);
        readers.wake();
        Ok(outputs.is_empty())
    }

    /// Whether someone is behind who would miss events if this were added.
    pub(super) fn has_laggard(&self, output: &Output) -> bool {
        self.is_full(&self.record.lock(), output)
    }

    pub(super) fn finish(
        &self,
        token: u64,
        outputs: Vec<Output>,
        ending: Ending,
        now: Instant,
    ) -> Result<Finished, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        let at = SystemTime::now();
        for output in outputs {
            self.push(&mut record, output, at);
        }
        let story = record.story_mut();
        story.holder = None;
        let cancelled = story.cancel.as_ref().map(|cancel| cancel.reason.clone());
        let finished = match (cancelled, ending) {
            (_, Ending::Over { outcome: outcome @ Outcome::Cancelled { .. }, .. }) => {
                self.over(&mut record, outcome, at, now)
            }
            // The attempt ended by itself after the cancel was accepted: the caller was told otherwise.
            (Some(reason), _) => {
                let outcome = Outcome::Cancelled { reason: (*reason).into(), stage: StopStage::CancelFrame };
                self.over(&mut record, outcome, at, now)
            }
            (None, Ending::Over { outcome, dead_letter }) => {
                if let Outcome::Error(failure) = &outcome {
                    story.failed((**failure).clone());
                }
                story.dead_letter = dead_letter;
                if dead_letter {
                    self.fixed.tally.metrics.record_dead_letter();
                }
                self.over(&mut record, outcome, at, now)
            }
            (None, Ending::Retry(retrying)) => self.retry(&mut record, retrying, at, now),
        };
        let readers = record.call_readers();
        drop(record);
        readers.wake();
        Ok(finished)
    }

    fn over(&self, record: &mut Record, outcome: Outcome, at: SystemTime, now: Instant) -> Finished {
        let state = outcome.state();
        self.end(record, outcome, at, now);
        Finished::Over(state)
    }

    fn retry(&self, record: &mut Record, retrying: Retrying, at: SystemTime, now: Instant) -> Finished {
        let story = record.story_mut();
        match retrying.failure.reason {
            FailureReason::Reported => story.attempts.reported += 1,
            _ => story.attempts.died += 1,
        }
        self.fixed.tally.metrics.record_retry(retrying.failure.reason);
        story.failed(retrying.failure.clone());
        let retry_at = now + retrying.delay;
        story.retry_at = Some(retry_at);
        let event = EventBody::Retrying(Box::new(retrying));
        self.add(record, at, event);
        self.step(record, QueryState::RetryPending);
        Finished::RetryAt(retry_at)
    }

    /// Lets a query whose retry is due wait for a worker again. True if it does now.
    pub(super) fn requeue_due(&self, now: Instant) -> bool {
        let mut record = self.record.lock();
        let due = record.story().and_then(|story| story.retry_at).is_some_and(|at| at <= now)
            && record.state == QueryState::RetryPending;
        if due {
            record.story_mut().retry_at = None;
            self.step(&mut record, QueryState::Pending);
        }
        due
    }

    pub(super) fn cancel(&self, reason: &str) -> CancelOutcome {
        self.cancel_locked(&mut self.record.lock(), reason)
    }

    /// Cancels the query if nobody has read it for as long as it may go unread.
    pub(super) fn cancel_if_abandoned(&self, now: Instant, reason: &str) -> Option<CancelOutcome> {
        let patience = self.fixed.abandon_after?;
        let mut record = self.record.lock();
        let gone = record.story().is_some_and(|story| story.readers.gone_for(patience, now));
        gone.then(|| self.cancel_locked(&mut record, reason))
    }

    fn cancel_locked(&self, record: &mut Record, reason: &str) -> CancelOutcome {
        let state = record.state;
        if state.is_terminal() {
            return CancelOutcome::Ended(state);
        }
        let story = record.story_mut();
        if story.cancel.is_some() {
            return CancelOutcome::Cancelling(state);
        }
        let Some(holder) = &story.holder else {
            self.end_here(record, Outcome::Cancelled { reason: reason.into(), stage: StopStage::Queued });
            return CancelOutcome::Queued;
        };
        let reason: Arc<str> = reason.into();
        let notify = holder.notify.clone();
        story.cancel = Some(Box::new(Cancelling { reason, since: Instant::now() }));
        if let Some(notify) = notify {
            notify.notify_one();
        }
        CancelOutcome::Running(state)
    }

    /// Ends the query with `outcome` if no worker has it.
    pub(super) fn end_waiting(&self, outcome: Outcome) -> bool {
        let mut record = self.record.lock();
        if record.state == QueryState::RetryPending {
            self.step(&mut record, QueryState::Pending);
        }
        let waits = record.state == QueryState::Pending;
        if waits {
            self.end_here(&mut record, outcome);
        }
        waits
    }

    /// Whether this would push out what someone has not read yet, or a part of itself.
    fn is_full(&self, record: &Record, output: &Output) -> bool {
        let Some(story) = record.story() else { return false };
        let first = story.log.first_after(output.events(), output.weight(), self.fixed.tally.log);
        first.is_none_or(|first| first > story.log.first() && story.readers.wants(first - 1))
    }

    fn push(&self, record: &mut Record, output: Output, at: SystemTime) {
        if record.state == QueryState::Processing && !matches!(output, Output::Session(_)) {
            self.step(record, QueryState::Streaming);
        }
        match output {
            Output::Session(session_id) => self.add(record, at, EventBody::Session { session_id }),
            Output::Message(content) => self.add(record, at, EventBody::Message { content }),
            Output::Messages(batch) => {
                let story = record.story_mut();
                let dropped = story.log.push_messages(story.attempts.attempt, at, batch, self.fixed.tally.log);
                self.count_dropped(dropped);
            }
        }
    }

    fn add(&self, record: &mut Record, at: SystemTime, body: EventBody) {
        let story = record.story_mut();
        let dropped = story.log.push(story.attempts.attempt, at, body, self.fixed.tally.log);
        self.count_dropped(dropped);
    }

    fn count_dropped(&self, dropped: usize) {
        if dropped > 0 {
            self.fixed.tally.metrics.record_dropped_events(dropped);
        }
    }

    /// Ends a query that no worker has.
    fn end_here(&self, record: &mut Record, outcome: Outcome) {
        self.end(record, outcome, SystemTime::now(), Instant::now());
        record.call_readers().wake();
    }

    /// The only way to a final state, so that there is exactly one final event. The readers are for the caller to wake.
    fn end(&self, record: &mut Record, outcome: Outcome, at: SystemTime, now: Instant) {
        self.step(record, outcome.state());
        if let Some(trace) = self.fixed.extras.as_ref().and_then(|extras| extras.trace.lock().take()) {
            trace.end(&outcome);
        }
        let story = record.story_mut();
        story.ended_at = Some(at);
        let cancelling =
            story.cancel.take().map_or(Duration::ZERO, |cancel| now.saturating_duration_since(cancel.since));
        let query_type = self.fixed.spec.query_type.as_deref();
        let took = now.saturating_duration_since(self.submitted);
        self.fixed.tally.metrics.record_end(query_type, &outcome, took, cancelling);
        story.log.push_last(story.attempts.attempt, at, EventBody::Ended(outcome));
    }

    fn step(&self, record: &mut Record, to: QueryState) {
        state::transition(record.state, to).expect("the broker makes only legal transitions");
        self.fixed.tally.moved(record.state, to, self.payload_bytes());
        self.fixed.tally.owners.moved(self.owner(), record.state, to);
        record.state = to;
    }
}

/// They fit for some centuries.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
