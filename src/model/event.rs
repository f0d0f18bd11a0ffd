//! The numbered entries of a query's result log.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    protocol::JsonText,
    state::{QueryState, named_enum},
};

use super::DeathCertificate;

/// One entry of a query's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub sequence: u64,
    /// 0 where no worker was involved.
    pub attempt: u32,
    pub at: SystemTime,
    pub body: EventBody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    Session {
        session_id: Box<str>,
    },
    Message {
        content: JsonText,
    },
    Retrying(Box<Retrying>),
    /// The sequence numbers `first..=last` are no longer kept.
    Gap {
        first: u64,
        last: u64,
    },
    /// The last event of every log.
    Ended(Outcome),
}

/// The end of a query. Each query has exactly one.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Complete { result: JsonText },
    Error(Box<Failure>),
    Cancelled { reason: Box<str>, stage: StopStage },
    Rejected { reason: RejectReason, message: Box<str> },
}

/// A failed attempt that is followed by another.
#[derive(Debug, Clone, PartialEq)]
pub struct Retrying {
    pub failed_attempt: u32,
    pub max_attempts: u32,
    pub delay: Duration,
    pub failure: Failure,
}

/// Error that ended a query or an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub reason: FailureReason,
    pub message: Box<str>,
    /// The worker's own code, if it reported the error.
    pub code: Option<Box<str>>,
    pub retryable: bool,
    pub details: Option<JsonText>,
    pub certificate: Option<Arc<DeathCertificate>>,
    /// Number of the failed attempt and the attempts allowed, where attempts are counted.
    pub attempt: Option<(u32, u32)>,
}

named_enum! {
    pub enum FailureReason {
        /// The worker reported an error and lives on.
        Reported => "reported",
        WorkerDied => "worker_died",
        TimedOut => "timed_out",
        Shutdown => "shutdown",
        /// The readers did not keep up with the query's messages.
        Overflow => "overflow",
    }
}

named_enum! {
    pub enum RejectReason {
        Deadline => "deadline",
        Shutdown => "shutdown",
        /// The kind's workers do not start.
        CircuitOpen => "circuit_open",
        /// No worker was ready, and the query asked not to wait.
        Busy => "busy",
        /// Pushed out of a full queue by a more urgent query.
        Shed => "shed",
    }
}

named_enum! {
    /// Stage of a stop at which a query ended.
    pub enum StopStage {
        /// No worker had the query.
        Queued => "queued",
        CancelFrame => "cancel_frame",
        Sigterm => "sigterm",
        Sigkill => "sigkill",
    }
}

impl Failure {
    /// A failure that has only a message.
    #[must_use]
    pub fn new(reason: FailureReason, message: impl Into<Box<str>>) -> Self {
        Self {
            reason,
            message: message.into(),
            code: None,
            retryable: false,
            details: None,
            certificate: None,
            attempt: None,
        }
    }

    #[must_use]
    pub fn with_certificate(mut self, certificate: Arc<DeathCertificate>) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Bytes that its texts count for against limits.
    pub(crate) fn weight(&self) -> usize {
        self.message.len() + self.details.as_ref().map_or(0, JsonText::len)
    }
}

impl Outcome {
    #[must_use]
    pub fn state(&self) -> QueryState {
        match self {
            Self::Complete { .. } => QueryState::Complete,
            Self::Error(_) => QueryState::Error,
            Self::Cancelled { .. } => QueryState::Cancelled,
            Self::Rejected { .. } => QueryState::Rejected,
        }
    }
}

impl EventBody {
    /// Bytes that the event counts for against the log's limit.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Session { session_id } => session_id.len(),
            Self::Message { content } => content.len(),
            Self::Retrying(retrying) => retrying.failure.weight(),
            Self::Gap { .. } => 0,
            Self::Ended(Outcome::Complete { result }) => result.len(),
            Self::Ended(Outcome::Error(failure)) => failure.weight(),
            Self::Ended(Outcome::Cancelled { reason, .. }) => reason.len(),
            Self::Ended(Outcome::Rejected { message, .. }) => message.len(),
        }
    }
}

impl StopStage {
    /// The words that end the sentence "it let go ...".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Queued => "before a worker had it",
            Self::CancelFrame => "on the cancel frame",
            Self::Sigterm => "on SIGTERM",
            Self::Sigkill => "on SIGKILL",
        }
    }
}
