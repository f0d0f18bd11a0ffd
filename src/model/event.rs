//! The numbered entries of a query's result log.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{protocol::JsonText, state::QueryState};

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

/// How a query ended: exactly one of these for each query.
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

/// What went wrong with a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub reason: FailureReason,
    pub message: Box<str>,
    /// The worker's own code, if it reported the error.
    pub code: Option<Box<str>>,
    pub retryable: bool,
    pub details: Option<JsonText>,
    pub certificate: Option<Arc<DeathCertificate>>,
    /// Which attempt of how many failed, where attempts are counted.
    pub attempt: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    /// The worker said so, and lives on.
    Reported,
    WorkerDied,
    TimedOut,
    Shutdown,
    /// Its readers did not keep up with it.
    Overflow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    Deadline,
    Shutdown,
    /// The kind's workers do not start.
    CircuitOpen,
    /// No worker was ready, and the query asked not to wait.
    Busy,
    /// Pushed out of a full queue by a more urgent query.
    Shed,
}

/// The stage of the stop ladder that made a worker let go of its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopStage {
    /// No worker had it.
    Queued,
    CancelFrame,
    Sigterm,
    Sigkill,
}

impl FailureReason {
    /// In the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Reported, Self::WorkerDied, Self::TimedOut, Self::Shutdown, Self::Overflow];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::WorkerDied => "worker_died",
            Self::TimedOut => "timed_out",
            Self::Shutdown => "shutdown",
            Self::Overflow => "overflow",
        }
    }
}

impl RejectReason {
    /// In the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Deadline, Self::Shutdown, Self::CircuitOpen, Self::Busy, Self::Shed];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Shutdown => "shutdown",
            Self::CircuitOpen => "circuit_open",
            Self::Busy => "busy",
            Self::Shed => "shed",
        }
    }
}

impl Failure {
    /// A failure with nothing to add to its message.
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
    /// What the entry counts for against the log's byte limit.
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

impl Failure {
    /// What its texts count for against limits in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.message.len() + self.details.as_ref().map_or(0, JsonText::len)
    }
}

impl StopStage {
    /// In the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Queued, Self::CancelFrame, Self::Sigterm, Self::Sigkill];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::CancelFrame => "cancel_frame",
            Self::Sigterm => "sigterm",
            Self::Sigkill => "sigkill",
        }
    }

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

impl fmt::Display for StopStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
