//! One query of the memory broker: its state, its log and its holder, changed only under its own lock.

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
    queue::{AtomicQueuePosition, RankTag},
    record::{Backpressure, FinishResult, Grant, LeaseHolder, PendingCancel, QueryMeta, Record, ReleaseResult},
};

#[derive(Debug)]
pub(super) struct Entry {
    pub meta: QueryMeta,
    pub submitted: Instant,
    /// Submit time in nanoseconds since 1970: half the size of a `SystemTime`, which counts in a long queue.
    submitted_at: u64,
    pub position: AtomicQueuePosition,
    pub(super) record: Mutex<Record>,
}

impl Entry {
    pub(super) fn new(meta: QueryMeta, now: Instant) -> Self {
        meta.kind_state.on_enter(QueryState::Pending, meta.spec.payload.len());
        meta.kind_state.owners.on_enter(meta.spec.owner.as_deref(), QueryState::Pending);
        Self {
            meta,
            submitted: now,
            submitted_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds),
            position: AtomicQueuePosition::default(),
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
        self.meta.spec.owner.as_deref()
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.meta.spec.payload.len()
    }

    /// True if no worker has had it yet.
    pub(super) fn is_unattempted(&self) -> bool {
        self.record.lock().attempt() == 0
    }

    /// Rank and tag that it had when it was claimed last.
    pub(super) fn rank_tag(&self) -> RankTag {
        self.record.lock().run().map(|run| run.rank_tag).unwrap_or_default()
    }

    pub(super) fn is_dead_letter(&self) -> bool {
        self.record.lock().is_dead_letter()
    }

    /// Time at which a waiting query is given up, if ever. The queue timeout holds until a worker first had it.
    pub(super) fn expires(&self) -> Option<Instant> {
        let queue = self.meta.spec.queue_timeout.and_then(|limit| self.submitted.checked_add(limit));
        let queue = queue.filter(|_| self.is_unattempted());
        match (queue, self.meta.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Claims the query if it still waits, counting an attempt.
    pub(super) fn claim(&self, claimant: Claimant<'_>, rank_tag: RankTag) -> Option<Grant> {
        let mut record = self.record.lock();
        if record.state != QueryState::Pending {
            return None;
        }
        self.transition(&mut record, QueryState::Processing);
        let run = record.run_mut();
        run.attempts.attempt += 1;
        run.worker = Some(claimant.worker);
        run.rank_tag = rank_tag;
        run.started_at.get_or_insert_with(SystemTime::now);
        let token = fastrand::u64(..);
        run.holder = Some(LeaseHolder { token, notify: claimant.notify.cloned() });
        let attempts = run.attempts;
        let trace = self.meta.rare.as_ref().and_then(|rare| rare.trace.lock().as_deref().map(QueryTrace::link));
        Some(Grant { token, attempts, trace })
    }

    pub(super) fn lease_status(&self, token: u64) -> LeaseStatus {
        let record = self.record.lock();
        if record.check(token).is_err() {
            return LeaseStatus::Lost;
        }
        let cancel = record.run().and_then(|run| run.cancel.as_ref());
        cancel.map_or(LeaseStatus::Active, |cancel| LeaseStatus::CancelRequested { reason: cancel.reason.clone() })
    }

    /// Undoes a claim whose query no worker has seen. If it was cancelled in between, it ends here.
    pub(super) fn release(&self, token: u64) -> ReleaseResult {
        let mut record = self.record.lock();
        if record.check(token).is_err() {
            return ReleaseResult::LeaseLost;
        }
        let run = record.run_mut();
        run.holder = None;
        run.attempts.attempt -= 1;
        run.worker = None;
        if run.attempts.attempt == 0 {
            run.started_at = None;
        }
        if let Some(reason) = run.cancel.as_ref().map(|cancel| cancel.reason.clone()) {
            self.end_unclaimed(&mut record, Outcome::Cancelled { reason: (*reason).into(), stage: StopStage::Queued });
            return ReleaseResult::Ended;
        }
        self.transition(&mut record, QueryState::RetryPending);
        self.transition(&mut record, QueryState::Pending);
        ReleaseResult::Waiting
    }

    /// Moves as much output to the log as there is room for. True if all of it was.
    pub(super) fn append(&self, token: u64, outputs: &mut Vec<Output>, room: Backpressure) -> Result<bool, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        let at = SystemTime::now();
        let mut rest = Vec::new();
        for output in outputs.drain(..) {
            if rest.is_empty() && (room == Backpressure::Ignore || !self.is_full(&record, &output)) {
                self.push_output(&mut record, output, at);
                continue;
            }
            for output in output.split() {
                if rest.is_empty() && !self.is_full(&record, &output) {
                    self.push_output(&mut record, output, at);
                } else {
                    rest.push(output);
                }
            }
        }
        // `outputs` keeps its capacity for the next batch.
        outputs.append(&mut rest);
        let readers = record.take_wakers();
        drop(record);
        readers.wake();
        Ok(outputs.is_empty())
    }

    /// True if a reader is behind that would miss events if this were added.
    pub(super) fn has_lagging_reader(&self, output: &Output) -> bool {
        self.is_full(&self.record.lock(), output)
    }

    pub(super) fn finish(
        &self,
        token: u64,
        outputs: Vec<Output>,
        ending: Ending,
        now: Instant,
    ) -> Result<FinishResult, LeaseLost> {
        let mut record = self.record.lock();
        record.check(token)?;
        let at = SystemTime::now();
        for output in outputs {
            self.push_output(&mut record, output, at);
        }
        let run = record.run_mut();
        run.holder = None;
        let cancelled = run.cancel.as_ref().map(|cancel| cancel.reason.clone());
        let finished = match (cancelled, ending) {
            (_, Ending::Over { outcome: outcome @ Outcome::Cancelled { .. }, .. }) => {
                self.over(&mut record, outcome, at, now)
            }
            // The attempt ended by itself after the cancel was accepted, and the caller relies on the cancel.
            (Some(reason), _) => {
                let outcome = Outcome::Cancelled { reason: (*reason).into(), stage: StopStage::CancelFrame };
                self.over(&mut record, outcome, at, now)
            }
            (None, Ending::Over { outcome, dead_letter }) => {
                if let Outcome::Error(failure) = &outcome {
                    run.record_failure((**failure).clone());
                }
                run.dead_letter = dead_letter;
                if dead_letter {
                    self.meta.kind_state.metrics.record_dead_letter();
                }
                self.over(&mut record, outcome, at, now)
            }
            (None, Ending::Retry(retrying)) => self.retry(&mut record, retrying, at, now),
        };
        let readers = record.take_wakers();
        drop(record);
        readers.wake();
        Ok(finished)
    }

    fn over(&self, record: &mut Record, outcome: Outcome, at: SystemTime, now: Instant) -> FinishResult {
        let state = outcome.state();
        self.end(record, outcome, at, now);
        FinishResult::Over(state)
    }

    fn retry(&self, record: &mut Record, retrying: Retrying, at: SystemTime, now: Instant) -> FinishResult {
        let run = record.run_mut();
        match retrying.failure.reason {
            FailureReason::Reported => run.attempts.reported += 1,
            _ => run.attempts.died += 1,
        }
        self.meta.kind_state.metrics.record_retry(retrying.failure.reason);
        run.record_failure(retrying.failure.clone());
        let retry_at = now + retrying.delay;
        run.retry_at = Some(retry_at);
        let event = EventBody::Retrying(Box::new(retrying));
        self.push_event(record, at, event);
        self.transition(record, QueryState::RetryPending);
        FinishResult::RetryAt(retry_at)
    }

    /// Makes a query whose retry is due wait for a worker again. True if it does now.
    pub(super) fn requeue_due(&self, now: Instant) -> bool {
        let mut record = self.record.lock();
        let due = record.run().and_then(|run| run.retry_at).is_some_and(|at| at <= now)
            && record.state == QueryState::RetryPending;
        if due {
            record.run_mut().retry_at = None;
            self.transition(&mut record, QueryState::Pending);
        }
        due
    }

    pub(super) fn cancel(&self, reason: &str) -> CancelOutcome {
        self.cancel_locked(&mut self.record.lock(), reason)
    }

    /// Cancels the query if nobody has read it for as long as it may go unread.
    pub(super) fn cancel_if_abandoned(&self, now: Instant, reason: &str) -> Option<CancelOutcome> {
        let patience = self.meta.abandon_after?;
        let mut record = self.record.lock();
        let gone = record.run().is_some_and(|run| run.readers.has_been_unread_for(patience, now));
        gone.then(|| self.cancel_locked(&mut record, reason))
    }

    fn cancel_locked(&self, record: &mut Record, reason: &str) -> CancelOutcome {
        let state = record.state;
        if state.is_terminal() {
            return CancelOutcome::Ended(state);
        }
        let run = record.run_mut();
        if run.cancel.is_some() {
            return CancelOutcome::Cancelling(state);
        }
        let Some(holder) = &run.holder else {
            self.end_unclaimed(record, Outcome::Cancelled { reason: reason.into(), stage: StopStage::Queued });
            return CancelOutcome::Queued;
        };
        let reason: Arc<str> = reason.into();
        let notify = holder.notify.clone();
        run.cancel = Some(Box::new(PendingCancel { reason, since: Instant::now() }));
        if let Some(notify) = notify {
            notify.notify_one();
        }
        CancelOutcome::Running(state)
    }

    /// Ends the query with `outcome` if no worker has it.
    pub(super) fn end_waiting(&self, outcome: Outcome) -> bool {
        let mut record = self.record.lock();
        if record.state == QueryState::RetryPending {
            self.transition(&mut record, QueryState::Pending);
        }
        let waits = record.state == QueryState::Pending;
        if waits {
            self.end_unclaimed(&mut record, outcome);
        }
        waits
    }

    /// True if this would push out events that a reader has not read yet, or a part of itself.
    fn is_full(&self, record: &Record, output: &Output) -> bool {
        let Some(run) = record.run() else { return false };
        let first = run.log.first_after(output.event_count(), output.weight(), self.meta.kind_state.log);
        first.is_none_or(|first| first > run.log.first() && run.readers.has_reader_behind(first - 1))
    }

    fn push_output(&self, record: &mut Record, output: Output, at: SystemTime) {
        if record.state == QueryState::Processing && !matches!(output, Output::Session(_)) {
            self.transition(record, QueryState::Streaming);
        }
        match output {
            Output::Session(session_id) => self.push_event(record, at, EventBody::Session { session_id }),
            Output::Message(content) => self.push_event(record, at, EventBody::Message { content }),
            Output::Messages(batch) => {
                let run = record.run_mut();
                let dropped = run.log.push_messages(run.attempts.attempt, at, batch, self.meta.kind_state.log);
                self.count_dropped(dropped);
            }
        }
    }

    fn push_event(&self, record: &mut Record, at: SystemTime, body: EventBody) {
        let run = record.run_mut();
        let dropped = run.log.push(run.attempts.attempt, at, body, self.meta.kind_state.log);
        self.count_dropped(dropped);
    }

    fn count_dropped(&self, dropped: usize) {
        if dropped > 0 {
            self.meta.kind_state.metrics.record_dropped_events(dropped);
        }
    }

    /// Ends a query that no worker has.
    fn end_unclaimed(&self, record: &mut Record, outcome: Outcome) {
        self.end(record, outcome, SystemTime::now(), Instant::now());
        record.take_wakers().wake();
    }

    /// Ends the query. The only way to a final state, so that there is exactly one final event. The caller wakes the readers.
    fn end(&self, record: &mut Record, outcome: Outcome, at: SystemTime, now: Instant) {
        self.transition(record, outcome.state());
        if let Some(trace) = self.meta.rare.as_ref().and_then(|rare| rare.trace.lock().take()) {
            trace.end(&outcome);
        }
        let run = record.run_mut();
        run.ended_at = Some(at);
        let cancelling = run.cancel.take().map_or(Duration::ZERO, |cancel| now.saturating_duration_since(cancel.since));
        let query_type = self.meta.spec.query_type.as_deref();
        let took = now.saturating_duration_since(self.submitted);
        self.meta.kind_state.metrics.record_end(query_type, &outcome, took, cancelling);
        run.log.push_last(run.attempts.attempt, at, EventBody::Ended(outcome));
    }

    fn transition(&self, record: &mut Record, to: QueryState) {
        state::transition(record.state, to).expect("the broker makes only legal transitions");
        self.meta.kind_state.on_move(record.state, to, self.payload_bytes());
        self.meta.kind_state.owners.on_move(self.owner(), record.state, to);
        record.state = to;
    }
}

/// Saturates in the year 2554.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
