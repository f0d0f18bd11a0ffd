//! The query that a worker is running, and the meaning of the frames that the worker sends for it.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::time::Instant;
use tracing::{Span, trace};

use crate::{
    broker::{AppendError, BATCH_MAX_ITEM_BYTES, Claim, Lease, MessageBatchBuilder, Output},
    model::{DeathCertificate, Failure, FailureReason, StopStage, WorkerId},
    protocol::{JsonText, PoolFrame, WorkerFrame},
    trace::{AttemptInfo, AttemptTrace},
};

use super::conclusion::Conclusion;

#[derive(Debug)]
pub(super) struct RunningQuery {
    pub lease: Lease,
    pub request_id: String,
    worker: WorkerId,
    /// Time of dispatch; `None` once the worker has sent a message.
    pub awaiting_message_since: Option<Instant>,
    /// The limit that applies, and when it is reached.
    pub timeout: Option<(Duration, Instant)>,
    attempt: AttemptTrace,
    pub cancel: Option<CancelInProgress>,
    /// Messages of the current read.
    batch: MessageBatchBuilder,
    /// Output that the log has not taken yet. While there is any, the worker is not read from.
    pub backlog: Vec<Output>,
    /// The frame that ends the query, handled once the backlog is empty.
    pub final_frame: Option<FinalFrame>,
}

/// A dispatch that the worker has not been sent yet.
#[derive(Debug)]
pub(super) struct PreparedQuery {
    /// The `query` frame.
    pub line: BytesMut,
    pub attempt: AttemptTrace,
    request_id: String,
    worker: WorkerId,
    started: Instant,
    timeout: Option<(Duration, Instant)>,
}

/// A query that the worker was told to give up.
#[derive(Debug)]
pub(super) struct CancelInProgress {
    pub cause: CancelCause,
    /// The worker is stopped if it has not answered by then.
    pub until: Instant,
}

#[derive(Debug)]
pub(super) enum CancelCause {
    /// Requested, for this reason.
    Cancel(Arc<str>),
    Timeout(Duration),
    /// The query's readers do not keep up.
    Overflow,
    LeaseLost,
    /// The worker is being stopped.
    Stop,
}

#[derive(Debug)]
pub(super) enum FinalFrame {
    Complete(JsonText),
    Error(Box<Failure>),
}

impl PreparedQuery {
    /// `number` counts the dispatches to this worker, which makes the request id unique.
    pub(super) fn new(
        worker: WorkerId,
        kind_timeout: Option<Duration>,
        claim: &Claim,
        number: u64,
        now: Instant,
    ) -> Self {
        let spec = claim.lease.spec();
        let request_id = format!("{worker}-{number}");
        let limit = [spec.timeout().or(kind_timeout), claim.deadline].into_iter().flatten().min();
        let timeout = limit.and_then(|limit| Some((limit, now.checked_add(limit)?)));
        let attempt = AttemptTrace::begin(claim.trace.as_ref(), attempt_info(&claim.lease, worker));
        let mut line = BytesMut::with_capacity(spec.payload.len() + 256);
        PoolFrame::Query {
            request_id: &request_id,
            payload: spec.payload.as_str(),
            attempt: Some(claim.lease.attempts().attempt),
            query_type: spec.query_type.as_deref(),
            key: spec.key.as_deref(),
            session_id: spec.session_id(),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            traceparent: attempt.traceparent().as_deref(),
        }
        .encode(&mut line);
        attempt.debug_span().in_scope(|| trace!(frame = "query", bytes = line.len(), "frame to the worker"));
        Self { line, attempt, request_id, worker, started: now, timeout }
    }

    /// True if the query times out within this time.
    pub(super) fn times_out_within(&self, time: Duration) -> bool {
        self.timeout.is_some_and(|(limit, _)| limit <= time)
    }

    /// The query once its frame is sent.
    pub(super) fn into_running(self, lease: Lease) -> RunningQuery {
        RunningQuery {
            lease,
            request_id: self.request_id,
            worker: self.worker,
            awaiting_message_since: Some(self.started),
            timeout: self.timeout,
            attempt: self.attempt,
            cancel: None,
            batch: MessageBatchBuilder::default(),
            backlog: Vec::new(),
            final_frame: None,
        }
    }
}

impl RunningQuery {
    /// The time at which the query times out, or at which its cancel does.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.cancel {
            Some(cancel) => Some(cancel.until),
            None => self.timeout.map(|(_, at)| at),
        }
    }

    /// Takes a frame of this query. `unread` bytes had arrived when the read began, which tells how large a batch may get.
    pub(super) fn on_frame(&mut self, frame: WorkerFrame<'_>, unread: usize) {
        match frame {
            WorkerFrame::Session { .. } | WorkerFrame::Message { .. } if self.drops_output() => {}
            WorkerFrame::Session { session_id, .. } => {
                self.flush_batch();
                self.backlog.push(Output::Session(session_id.into()));
            }
            WorkerFrame::Message { content, .. } if content.len() < BATCH_MAX_ITEM_BYTES => {
                self.batch.push_checked(content, unread);
            }
            WorkerFrame::Message { content, .. } => {
                self.flush_batch();
                self.backlog.push(Output::Message(JsonText::from_checked(content)));
            }
            WorkerFrame::Complete { result, .. } => {
                self.final_frame = Some(FinalFrame::Complete(JsonText::from_checked(result)));
            }
            WorkerFrame::Error { error, code, retryable, details, .. } => {
                self.final_frame = Some(FinalFrame::Error(Box::new(Failure {
                    reason: FailureReason::Reported,
                    message: error.into(),
                    code: code.map(Into::into),
                    retryable: retryable.unwrap_or(false),
                    details: details.map(JsonText::from_checked),
                    certificate: None,
                    attempt: None,
                })));
            }
            // These belong to no query.
            WorkerFrame::Ready { .. }
            | WorkerFrame::Heartbeat { .. }
            | WorkerFrame::HealthOk { .. }
            | WorkerFrame::ShutdownAck => {}
        }
    }

    /// Moves the batched messages to the backlog.
    pub(super) fn flush_batch(&mut self) {
        self.backlog.extend(self.batch.take());
    }

    /// Moves the backlog to the log; never resolves if there is none.
    pub(super) async fn append_backlog(&mut self) -> Result<(), AppendError> {
        if self.backlog.is_empty() {
            return std::future::pending().await;
        }
        self.lease.append(&mut self.backlog).await
    }

    /// True if some output was dropped: later output must not follow as if nothing were missing.
    fn drops_output(&self) -> bool {
        matches!(&self.cancel, Some(CancelInProgress { cause: CancelCause::Overflow | CancelCause::LeaseLost, .. }))
    }

    /// The log's span of this attempt.
    pub(super) fn span(&self) -> Span {
        self.attempt.span(attempt_info(&self.lease, self.worker))
    }

    /// The conclusion by the worker's own final frame, given what it was told before. `None` without such a frame.
    pub(super) fn conclusion(&mut self) -> Option<Conclusion> {
        let frame = self.final_frame.take()?;
        Some(match (self.cancel.take().map(|cancel| cancel.cause), frame) {
            (Some(CancelCause::Cancel(reason)), _) => Conclusion::Cancelled { reason, stage: StopStage::CancelFrame },
            (Some(CancelCause::Timeout(limit)), _) => {
                Conclusion::TimedOut { limit, stage: StopStage::CancelFrame, certificate: None }
            }
            (Some(CancelCause::Overflow), _) => Conclusion::Overflowed,
            (Some(CancelCause::LeaseLost), _) => Conclusion::LeaseLost,
            (Some(CancelCause::Stop) | None, FinalFrame::Complete(result)) => Conclusion::Complete { result },
            // Any error after a stop is taken for its consequence.
            (Some(CancelCause::Stop), FinalFrame::Error(_)) => Conclusion::CutShort,
            (None, FinalFrame::Error(failure)) => Conclusion::Reported(failure),
        })
    }

    /// The conclusion by the end of the worker, which took `stage`.
    pub(super) fn conclusion_by_death(&self, certificate: &Arc<DeathCertificate>, stage: StopStage) -> Conclusion {
        match self.cancel.as_ref().map(|cancel| &cancel.cause) {
            Some(CancelCause::Cancel(reason)) => Conclusion::Cancelled { reason: reason.clone(), stage },
            Some(CancelCause::Timeout(limit)) => {
                Conclusion::TimedOut { limit: *limit, stage, certificate: Some(certificate.clone()) }
            }
            Some(CancelCause::Overflow) => Conclusion::Overflowed,
            Some(CancelCause::LeaseLost) => Conclusion::LeaseLost,
            Some(CancelCause::Stop) | None => Conclusion::Died(certificate.clone()),
        }
    }

    /// Ends the attempt's trace. Returns what the host needs, and the span for what is left to log.
    pub(super) fn finish(self, conclusion: &Conclusion) -> (Lease, Vec<Output>, Span) {
        let span = self.attempt.end(conclusion.failure_text().as_deref(), attempt_info(&self.lease, self.worker));
        (self.lease, self.backlog, span)
    }
}

fn attempt_info(lease: &Lease, worker: WorkerId) -> AttemptInfo<'_> {
    AttemptInfo { query: lease.query(), spec: lease.spec(), worker, attempt: lease.attempts().attempt }
}
