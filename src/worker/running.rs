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
    pub attempt: AttemptTrace,
    pub cancel: Option<CancelInProgress>,
    /// Messages of the current read.
    batch: MessageBatchBuilder,
    /// Output that the log has not taken yet. While there is any, the worker is not read from.
    pub backlog: Vec<Output>,
    /// The frame that ends the query, handled once the backlog is empty.
    pub final_frame: Option<FinalFrame>,
}

/// The circumstances of a dispatch.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub worker: WorkerId,
    /// Counts the worker's dispatches, which makes the request id unique.
    pub number: u64,
    pub at: Instant,
    pub kind_timeout: Option<Duration>,
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

/// The end of the worker, which took `stage`.
#[derive(Debug)]
pub(super) struct Death {
    pub certificate: Arc<DeathCertificate>,
    pub stage: StopStage,
}

#[derive(Debug)]
pub(super) enum FinalFrame {
    Complete(JsonText),
    Error(Box<Failure>),
}

impl RunningQuery {
    /// Prepares a claimed query for a worker. Returns the `query` frame too, which is still to be sent.
    pub(super) fn new(claim: Claim, dispatch: &Dispatch) -> (Self, BytesMut) {
        let &Dispatch { worker, number, at, kind_timeout } = dispatch;
        let Claim { lease, deadline, trace, .. } = claim;
        let spec = lease.spec();
        let request_id = format!("{worker}-{number}");
        let limit = [spec.timeout().or(kind_timeout), deadline].into_iter().flatten().min();
        let attempt = AttemptTrace::begin(trace.as_deref(), attempt_info(&lease, worker));
        let mut line = BytesMut::with_capacity(spec.payload.len() + 256);
        PoolFrame::Query {
            request_id: &request_id,
            payload: spec.payload.as_str(),
            attempt: Some(lease.attempts().attempt),
            query_type: spec.query_type.as_deref(),
            key: spec.key.as_deref(),
            session_id: spec.session_id(),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            traceparent: attempt.traceparent().as_deref(),
        }
        .encode(&mut line);
        attempt.debug_span().in_scope(|| trace!(frame = "query", bytes = line.len(), "frame to the worker"));
        let query = Self {
            request_id,
            worker,
            awaiting_message_since: Some(at),
            timeout: limit.and_then(|limit| Some((limit, at.checked_add(limit)?))),
            attempt,
            cancel: None,
            batch: MessageBatchBuilder::default(),
            backlog: Vec::new(),
            final_frame: None,
            lease,
        };
        (query, line)
    }

    /// Takes the query back from a worker that could not be sent the frame: it does not count as an attempt.
    pub(super) fn undelivered(self) -> Lease {
        self.attempt.end_undelivered();
        self.lease
    }

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

    /// The conclusion of the query: by the worker's final frame if there is one, else by its death. `None` without either.
    ///
    /// A cancel decides first: any final frame, and any death, after it is its consequence.
    /// A final frame that waited for slow readers was sent before the death, and counts.
    pub(super) fn conclusion(&mut self, death: Option<Death>) -> Option<Conclusion> {
        let frame = self.final_frame.take();
        let death = death.filter(|_| frame.is_none());
        if frame.is_none() && death.is_none() {
            return None;
        }
        let stage = death.as_ref().map_or(StopStage::CancelFrame, |death| death.stage);
        let certificate = death.map(|death| death.certificate);
        Some(match (self.cancel.take().map(|cancel| cancel.cause), frame) {
            (Some(CancelCause::Cancel(reason)), _) => Conclusion::Cancelled { reason, stage },
            (Some(CancelCause::Timeout(limit)), _) => Conclusion::TimedOut { limit, stage, certificate },
            (Some(CancelCause::Overflow), _) => Conclusion::Overflowed,
            (Some(CancelCause::LeaseLost), _) => Conclusion::LeaseLost,
            (Some(CancelCause::Stop) | None, Some(FinalFrame::Complete(result))) => Conclusion::Complete { result },
            (Some(CancelCause::Stop), Some(FinalFrame::Error(_))) => Conclusion::CutShort,
            (None, Some(FinalFrame::Error(failure))) => Conclusion::Reported(failure),
            (Some(CancelCause::Stop) | None, None) => Conclusion::Died(certificate?),
        })
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
