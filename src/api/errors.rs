//! The mapping from errors to gRPC statuses with `google.rpc` details.

use std::{collections::HashMap, fmt::Display, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::{
    broker::{DeadLetterError, NoSuchDeadLetter, NoSuchQuery, QueryError, SubmitError, Unavailable},
    model::{DeathCertificate, Failure, FailureReason, Outcome, RejectReason, WorkerId},
    pool::{AdminError, RequestError, RequeueError},
};

const DOMAIN: &str = "remuda";
/// A status travels in HTTP/2 trailers, which common clients limit to 8 KiB. The final event holds the whole text.
const MESSAGE_MAX_BYTES: usize = 600;
/// Errors of a configuration are in the status only. This length fits, although it is encoded twice.
const CONFIG_ERROR_MAX_BYTES: usize = 2_000;
/// Bounds the part of a worker's error code that is quoted.
const QUOTE_MAX_BYTES: usize = 128;
/// Estimate of the time until a full queue has room or a kind has a worker.
const FULL_RETRY_DELAY: Duration = Duration::from_secs(1);
/// A pool that an operator has drained stays so for longer.
const DRAINED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// A key and value of `ErrorInfo.metadata`.
type Fact<'a> = (&'a str, &'a dyn Display);

/// Invalid fields of a request.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<FieldViolation>);

impl Violations {
    pub(super) fn add(&mut self, field: &str, description: impl Into<String>) {
        self.0.push(FieldViolation::new(field, description));
    }

    /// Fails if there are any, naming every field.
    pub(super) fn check(self) -> Result<(), Status> {
        if self.0.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = self.0.iter().map(|v| format!("{}: {}", v.field, v.description)).collect();
        let mut details = info("INVALID_ARGUMENT", &[]);
        details.set_bad_request(self.0);
        Err(with_details(Code::InvalidArgument, &list.join("; "), details))
    }
}

pub(super) fn invalid(field: &str, description: impl Into<String>) -> Status {
    let mut violations = Violations::default();
    violations.add(field, description);
    violations.check().expect_err("one violation was added")
}

/// Adds details to a status from tonic itself, and corrects its code where the client made the mistake. `None` if the status
/// has details already.
pub(super) fn explain_tonic_status(original: &Status) -> Option<Status> {
    if !original.details().is_empty() {
        return None;
    }
    let text = original.message();
    let (code, reason, message) = match original.code() {
        Code::OutOfRange | Code::ResourceExhausted => (
            Code::ResourceExhausted,
            "MESSAGE_TOO_LARGE",
            format!(
                "the request is too large (server.max_message_bytes): {text}; send less, or pass a reference to the data"
            ),
        ),
        Code::Unimplemented if original.metadata().get("grpc-accept-encoding").is_none() => (
            Code::Unimplemented,
            "METHOD_NOT_FOUND",
            "there is no such method; the server's reflection lists all methods".to_owned(),
        ),
        Code::Unimplemented => (
            Code::Unimplemented,
            "UNSUPPORTED_COMPRESSION",
            format!("{text}; send messages uncompressed, or with a compression of grpc-accept-encoding"),
        ),
        // The gRPC specification requires this code.
        Code::Internal if text.contains("compressed-flag") => (
            Code::Internal,
            "BAD_COMPRESSED_FLAG",
            format!("{text}; name the compression, or send the message uncompressed"),
        ),
        Code::Internal => (
            Code::InvalidArgument,
            "MALFORMED_REQUEST",
            format!(
                "the request cannot be decoded: {text}; see proto/remuda/v1 or the server's reflection for the message of \
                 this method"
            ),
        ),
        _ => return None,
    };
    let mut explained = status(code, reason, &message, &[]);
    // Names the compressions that the server accepts.
    if let Some(accepted) = original.metadata().get("grpc-accept-encoding") {
        explained.metadata_mut().insert("grpc-accept-encoding", accepted.clone());
    }
    Some(explained)
}

/// A call on a connection that is being closed to make room for another.
pub(super) fn connection_closing() -> Status {
    let message = "the connection is being closed to make room for another (server.max_connections); call again";
    status(Code::Unavailable, "CONNECTION_CLOSED", message, &[])
}

/// A call that was not answered before its client's deadline.
pub(super) fn client_deadline_passed() -> Status {
    let message = "the call was not answered within its grpc-timeout";
    status(Code::DeadlineExceeded, "CLIENT_DEADLINE", message, &[])
}

pub(super) fn request_timed_out(limit: Duration) -> Status {
    let limit = humantime::format_duration(limit);
    let message = format!("the request did not arrive within {limit} (server.request_timeout)");
    status(Code::DeadlineExceeded, "REQUEST_TIMEOUT", &message, &[("limit", &limit)])
}

pub(super) fn no_such_worker(id: WorkerId) -> Status {
    let message = format!("worker {id} is not known; ended workers are kept for a limited time");
    status(Code::NotFound, "WORKER_NOT_FOUND", &message, &[("worker_id", &id)])
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::Submit(error) => error.into(),
            RequestError::Unroutable(unroutable) => invalid(unroutable.field(), message),
            RequestError::NotAdmitting(_) => status(Code::Unavailable, "DRAINING", &message, &[]),
            RequestError::Drained(_) => with_retry(Code::Unavailable, "DRAINED", &message, &[], DRAINED_RETRY_DELAY),
            RequestError::Busy { kind } => exhausted("BUSY", &message, &[("kind", &kind)]),
            RequestError::CircuitOpen { kind, .. } => {
                with_retry(Code::Unavailable, "CIRCUIT_OPEN", &message, &[("kind", &kind)], FULL_RETRY_DELAY)
            }
        }
    }
}

impl From<SubmitError> for Status {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Unavailable(error) => error.into(),
            SubmitError::Closed => status(Code::Unavailable, "DRAINING", &message, &[]),
            SubmitError::QueueFull { .. } | SubmitError::QueueBytesFull { .. } => {
                exhausted("QUEUE_FULL", &message, &[])
            }
            SubmitError::OwnerQueueFull { owner, .. } => exhausted("OWNER_QUEUE_FULL", &message, &[("owner", &owner)]),
            SubmitError::Conflict { id } => status(Code::AlreadyExists, "QUERY_EXISTS", &message, &[("query_id", &id)]),
        }
    }
}

impl From<QueryError> for Status {
    fn from(error: QueryError) -> Self {
        let message = error.to_string();
        match error {
            QueryError::NoSuchQuery(NoSuchQuery(id)) => {
                status(Code::NotFound, "QUERY_NOT_FOUND", &message, &[("query_id", &id)])
            }
            QueryError::Unavailable(error) => error.into(),
        }
    }
}

impl From<Unavailable> for Status {
    fn from(error: Unavailable) -> Self {
        with_retry(Code::Unavailable, "BROKER_UNAVAILABLE", &error.to_string(), &[], FULL_RETRY_DELAY)
    }
}

impl From<DeadLetterError> for Status {
    fn from(error: DeadLetterError) -> Self {
        let message = error.to_string();
        match error {
            DeadLetterError::NoSuchDeadLetter(NoSuchDeadLetter(id)) => {
                status(Code::NotFound, "DEAD_LETTER_NOT_FOUND", &message, &[("query_id", &id)])
            }
            DeadLetterError::Submit(error) => error.into(),
            DeadLetterError::Unavailable(error) => error.into(),
        }
    }
}

impl From<RequeueError> for Status {
    fn from(error: RequeueError) -> Self {
        match error {
            RequeueError::Letter(error) => error.into(),
            RequeueError::Refused(error) => error.into(),
        }
    }
}

impl From<AdminError> for Status {
    fn from(error: AdminError) -> Self {
        let message = error.to_string();
        let status = |code, reason, facts: &[Fact<'_>]| status(code, reason, &message, facts);
        match error {
            AdminError::NoSuchKind { kind, .. } => status(Code::NotFound, "KIND_NOT_FOUND", &[("kind", &kind)]),
            AdminError::NoSuchWorker(id) => status(Code::NotFound, "WORKER_NOT_FOUND", &[("worker_id", &id)]),
            AdminError::OutOfRange { field, asked, limit } => {
                let mut details = info("OUT_OF_RANGE", &[("asked", &asked)]);
                details.add_bad_request_violation(field, format!("{asked} is out of range; {limit}"));
                with_details(Code::OutOfRange, &message, details)
            }
            AdminError::Busy { worker, query } => {
                let facts: [Fact<'_>; 2] = [("worker_id", &worker), ("query_id", &query)];
                status(Code::FailedPrecondition, "WORKER_BUSY", &facts)
            }
            AdminError::AtMinimum { kind, min } => {
                status(Code::FailedPrecondition, "AT_MINIMUM", &[("kind", &kind), ("min", &min)])
            }
            AdminError::NotInService { worker, .. } => {
                status(Code::FailedPrecondition, "WORKER_NOT_IN_SERVICE", &[("worker_id", &worker)])
            }
            AdminError::Stopping(id) => status(Code::FailedPrecondition, "WORKER_STOPPING", &[("worker_id", &id)]),
            AdminError::ShuttingDown => status(Code::Unavailable, "SHUTDOWN", &[]),
            AdminError::NoConfigFile => status(Code::FailedPrecondition, "NO_CONFIG_FILE", &[]),
            AdminError::BadConfig(_) => {
                let message = truncated(&message, CONFIG_ERROR_MAX_BYTES);
                Self::with_error_details(Code::InvalidArgument, message, info("BAD_CONFIG", &[]))
            }
        }
    }
}

/// The status of Execute for the outcome of its query; `None` for a result.
pub(super) fn outcome_status(outcome: &Outcome) -> Option<Status> {
    Some(match outcome {
        Outcome::Complete { .. } => return None,
        Outcome::Error(failure) => failure_status(failure),
        Outcome::Cancelled { reason, stage } => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let message = format!("the query was cancelled{reason}");
            status(Code::Cancelled, "CANCELLED", &message, &[("stage", stage)])
        }
        Outcome::Rejected { reason, message } => match reason {
            RejectReason::Deadline => status(Code::DeadlineExceeded, "QUEUE_DEADLINE", message, &[]),
            RejectReason::Shutdown => status(Code::Unavailable, "SHUTDOWN", message, &[]),
            RejectReason::CircuitOpen => status(Code::Unavailable, "CIRCUIT_OPEN", message, &[]),
            RejectReason::Busy => exhausted("BUSY", message, &[]),
            RejectReason::Shed => exhausted("SHED", message, &[]),
        },
    })
}

fn failure_status(failure: &Failure) -> Status {
    let (code, reason) = match failure.reason {
        FailureReason::Reported => (Code::Unknown, "WORKER_REPORTED"),
        FailureReason::WorkerDied => (Code::Internal, "WORKER_DIED"),
        FailureReason::TimedOut => (Code::DeadlineExceeded, "TIMED_OUT"),
        FailureReason::Shutdown => (Code::Unavailable, "SHUTDOWN"),
        FailureReason::Overflow => (Code::ResourceExhausted, "OVERFLOW"),
    };
    let mut facts = failure.certificate.as_deref().map(certificate_facts).unwrap_or_default();
    if let Some((attempt, allowed)) = failure.attempt {
        facts.extend([("attempt", attempt.to_string()), ("max_attempts", allowed.to_string())]);
    }
    if let Some(worker_code) = &failure.code {
        facts.push(("worker_code", truncated(worker_code, QUOTE_MAX_BYTES)));
    }
    let facts: Vec<Fact<'_>> = facts.iter().map(|(key, value)| (*key, value as &dyn Display)).collect();
    status(code, reason, &failure.message, &facts)
}

/// The parts of a certificate that a program can act on.
fn certificate_facts(certificate: &DeathCertificate) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("worker_id", certificate.worker.to_string()),
        ("kind", certificate.kind.to_string()),
        ("cause", certificate.cause.to_string()),
        ("uptime_ms", certificate.uptime.as_millis().to_string()),
        ("queries_processed", certificate.queries_processed.to_string()),
    ];
    facts.extend(certificate.pid.map(|pid| ("pid", pid.to_string())));
    facts.extend(certificate.exit.code().map(|code| ("exit_code", code.to_string())));
    facts.extend(certificate.exit.signal_name().map(|signal| ("signal", signal)));
    facts.extend(certificate.last_words().map(|words| ("last_words", words)));
    facts.extend(certificate.peak_rss.map(|peak| ("peak_rss_bytes", peak.to_string())));
    facts
}

/// A refusal for lack of room, which may be there after a retry.
fn exhausted(reason: &str, message: &str, facts: &[Fact<'_>]) -> Status {
    with_retry(Code::ResourceExhausted, reason, message, facts, FULL_RETRY_DELAY)
}

fn with_retry(code: Code, reason: &str, message: &str, facts: &[Fact<'_>], delay: Duration) -> Status {
    let mut details = info(reason, facts);
    details.set_retry_info(Some(delay));
    with_details(code, message, details)
}

pub(super) fn status(code: Code, reason: &str, message: &str, facts: &[Fact<'_>]) -> Status {
    with_details(code, message, info(reason, facts))
}

fn with_details(code: Code, message: &str, details: ErrorDetails) -> Status {
    Status::with_error_details(code, truncated(message, MESSAGE_MAX_BYTES), details)
}

fn info(reason: &str, facts: &[Fact<'_>]) -> ErrorDetails {
    let metadata: HashMap<_, _> = facts.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
    ErrorDetails::with_error_info(reason, DOMAIN, metadata)
}

/// At most `max` bytes, whole characters.
fn truncated(text: &str, max: usize) -> String {
    if text.len() <= max { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(max)]) }
}

#[cfg(test)]
mod tests;
