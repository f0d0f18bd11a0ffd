//! The query that a worker is running, and what its frames amount to.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    broker::{AppendError, BATCH_MAX_ITEM_BYTES, Lease, MessageBatchBuilder, Output},
    model::{Failure, FailureReason, StopStage, WorkerId},
    protocol::{JsonText, WorkerFrame},
    trace::{Attempt, Try},
};

use super::{Conclusion, task::Task};

#[derive(Debug)]
pub(super) struct Running {
    pub lease: Lease,
    pub request_id: String,
    /// When the worker got it; `None` once it has sent a message.
    pub unanswered: Option<Instant>,
    pub timeout: Option<(Duration, Instant)>,
    pub attempt: Attempt,
    pub letting_go: Option<LettingGo>,
    /// Messages of the current read.
    batch: MessageBatchBuilder,
    /// What the worker has said and the log has not taken yet. While there is any, the worker is not read from.
    pub backlog: Vec<Output>,
    /// The worker's last word on it, to be acted upon once the backlog is gone.
    pub verdict: Option<Verdict>,
}

/// A running query that the worker was told to let go of.
#[derive(Debug)]
pub(super) struct LettingGo {
    pub why: Why,
    pub until: Instant,
}

#[derive(Debug)]
pub(super) enum Why {
    Cancel(Arc<str>),
    Timeout(Duration),
    /// Its readers do not keep up.
    Overflow,
    Lost,
    Stop,
}

#[derive(Debug)]
pub(super) enum Verdict {
    Complete(JsonText),
    Error(Box<Failure>),
}

impl Running {
    pub(super) fn new(task: Task) -> Self {
        Self {
            lease: task.lease,
            request_id: task.request_id,
            unanswered: Some(task.begun.into()),
            timeout: task.timeout.map(|(limit, at)| (limit, at.into())),
            attempt: task.attempt,
            letting_go: None,
            batch: MessageBatchBuilder::default(),
            backlog: Vec::new(),
            verdict: None,
        }
    }

    /// When patience with this query runs out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.letting_go {
            Some(letting_go) => Some(letting_go.until),
            None => self.timeout.map(|(_, at)| at),
        }
    }

    /// Takes a frame that belongs to this query, out of `waiting` bytes that have come. Messages are gathered until they are
    /// [settled](Self::settle).
    pub(super) fn take(&mut self, frame: WorkerFrame<'_>, waiting: usize) {
        match frame {
            WorkerFrame::Session { .. } | WorkerFrame::Message { .. } if self.is_unwanted() => {}
            WorkerFrame::Session { session_id, .. } => {
                self.settle();
                self.backlog.push(Output::Session(session_id.into()));
            }
            WorkerFrame::Message { content, .. } if content.len() < BATCH_MAX_ITEM_BYTES => {
                self.batch.push_checked(content, waiting);
            }
            WorkerFrame::Message { content, .. } => {
                self.settle();
                self.backlog.push(Output::Message(JsonText::from_checked(content)));
            }
            WorkerFrame::Complete { result, .. } => {
                self.verdict = Some(Verdict::Complete(JsonText::from_checked(result)));
            }
            WorkerFrame::Error { error, code, retryable, details, .. } => {
                self.verdict = Some(Verdict::Error(Box::new(Failure {
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

    /// Adds the gathered messages to the backlog.
    pub(super) fn settle(&mut self) {
        self.backlog.extend(self.batch.take());
    }

    /// Whether some of its output was dropped: what follows must not close up to what came before.
    fn is_unwanted(&self) -> bool {
        let why = self.letting_go.as_ref().map(|letting_go| &letting_go.why);
        matches!(why, Some(Why::Overflow | Why::Lost))
    }

    /// What the worker's own last word means, given what it was told before.
    pub(super) fn conclusion(letting_go: Option<LettingGo>, verdict: Verdict) -> Conclusion {
        match (letting_go.map(|letting_go| letting_go.why), verdict) {
            (Some(Why::Cancel(reason)), _) => Conclusion::Cancelled { reason, stage: StopStage::CancelFrame },
            (Some(Why::Timeout(limit)), _) => {
                Conclusion::TimedOut { limit, stage: StopStage::CancelFrame, certificate: None }
            }
            (Some(Why::Overflow), _) => Conclusion::Overflowed,
            (Some(Why::Lost), _) => Conclusion::LeaseLost,
            (Some(Why::Stop) | None, Verdict::Complete(result)) => Conclusion::Complete { result },
            // Whatever error it gives, it gives because it was told to stop.
            (Some(Why::Stop), Verdict::Error(_)) => Conclusion::CutShort,
            (None, Verdict::Error(failure)) => Conclusion::Reported(failure),
        }
    }
}

/// Who tries what, by a lease.
pub(super) fn try_of(lease: &Lease, worker: WorkerId) -> Try<'_> {
    Try { query: lease.query(), spec: lease.spec(), worker, attempt: lease.attempts().attempt }
}

/// Gives the backlog to the log; waits for ever if there is none.
pub(super) async fn append(lease: &mut Lease, backlog: &mut Vec<Output>) -> Result<(), AppendError> {
    if backlog.is_empty() {
        return std::future::pending().await;
    }
    lease.append(backlog).await
}
