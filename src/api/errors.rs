//! The one mapping from what went wrong to a gRPC status with `google.rpc` details.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::{
    broker::{DeadLetterError, NoSuchDeadLetter, NoSuchQuery, QueryError, SubmitError, Unavailable},
    model::{DeathCertificate, Failure, FailureReason, Outcome, RejectReason, WorkerId},
    pool::{AdminError, RequestError, RequeueError, Unroutable},
};

const DOMAIN: &str = "remuda";
/// A status travels in HTTP/2 trailers, which common clients limit to 8 KiB: the whole text is in the final event.
const MAX_STATUS_MESSAGE: usize = 600;
/// Mistakes in a configuration are in the status only. This much still fits, encoded twice as it is.
const MAX_MISTAKES: usize = 2_000;
/// What is quoted of a client's own words.
const MAX_QUOTED: usize = 128;
/// A guess at when a full queue has room again, or a kind a worker.
const RETRY_WHEN_FULL: Duration = Duration::from_secs(1);
/// What a person has closed is not open again in a moment.
const RETRY_WHEN_DRAINED: Duration = Duration::from_secs(10);

/// What is wrong with a request, field by field.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<FieldViolation>);

impl Violations {
    pub(super) fn add(&mut self, field: &str, description: impl Into<String>) {
        self.0.push(FieldViolation::new(field, description));
    }

    /// Fails if anything was found, naming every field.
    pub(super) fn check(self) -> Result<(), Status> {
        if self.0.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = self.0.iter().map(|v| format!("{}: {}", v.field, v.description)).collect();
        let mut details = info("INVALID_ARGUMENT", []);
        details.set_bad_request(self.0);
        Err(status(Code::InvalidArgument, &list.join("; "), details))
    }
}

pub(super) fn invalid(field: &str, description: impl Into<String>) -> Status {
    let mut violations = Violations::default();
    violations.add(field, description);
    violations.check().expect_err("one violation was added")
}

/// A status of tonic's own with details, and with a code that says whose mistake it was; `None` if the status has details.
pub(super) fn explained(status: &Status) -> Option<Status> {
    if !status.details().is_empty() {
        return None;
    }
    let text = status.message();
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            let message = format!(
                "the request is too large (server.max_message_bytes): {text}; send less, or pass a reference to where it is"
            );
            Some(plain(Code::ResourceExhausted, &message, "MESSAGE_TOO_LARGE"))
        }
        Code::Unimplemented if status.metadata().get("grpc-accept-encoding").is_none() => {
            let message = "there is no such method; the server's reflection lists those there are";
            Some(plain(Code::Unimplemented, message, "METHOD_NOT_FOUND"))
        }
        Code::Unimplemented => {
            let message = format!("{text}; send messages as they are, or in a compression of grpc-accept-encoding");
            let details = info("UNSUPPORTED_COMPRESSION", []);
            let message = cut(&message, MAX_STATUS_MESSAGE);
            Some(Status::with_error_details_and_metadata(
                Code::Unimplemented,
                message,
                details,
                status.metadata().clone(),
            ))
        }
        // gRPC asks for this code.
        Code::Internal if text.contains("compressed-flag") => {
            let message = format!("{text}; name it, or send the message as it is");
            Some(plain(Code::Internal, &message, "BAD_COMPRESSED_FLAG"))
        }
        Code::Internal => {
            let message = format!(
                "the request is not what its method takes: {text}; send what the server's reflection says, or \
                 proto/remuda/v1"
            );
            Some(plain(Code::InvalidArgument, &message, "MALFORMED_REQUEST"))
        }
        _ => None,
    }
}

/// A call on a connection that is being closed to make room for another.
pub(super) fn connection_leaving() -> Status {
    let message = "the connection is closed to make room for another (server.max_connections); call again";
    plain(Code::Unavailable, message, "CONNECTION_CLOSED")
}

/// A call that was not answered before its client gave up.
pub(super) fn client_deadline_passed() -> Status {
    plain(Code::DeadlineExceeded, "the call was not answered within its grpc-timeout", "CLIENT_DEADLINE")
}

/// A request that has not arrived in the time it has for that.
pub(super) fn too_slow(limit: Duration) -> Status {
    let limit = humantime::format_duration(limit);
    let message = format!("the request did not arrive within {limit} (server.request_timeout)");
    status(Code::DeadlineExceeded, &message, info("REQUEST_TIMEOUT", [("limit", limit.to_string())]))
}

pub(super) fn refused(error: &RequestError) -> Status {
    let message = error.to_string();
    match error {
        RequestError::NotAdmitting(_) | RequestError::Submit(SubmitError::Closed) => {
            status(Code::Unavailable, &message, info("DRAINING", []))
        }
        RequestError::Drained(_) => {
            let mut details = info("DRAINED", []);
            details.set_retry_info(Some(RETRY_WHEN_DRAINED));
            status(Code::Unavailable, &message, details)
        }
        RequestError::Busy { kind } => full(&message, info("BUSY", [("kind", kind.to_string())])),
        RequestError::CircuitOpen { kind, .. } => {
            let mut details = info("CIRCUIT_OPEN", [("kind", kind.to_string())]);
            details.set_retry_info(Some(RETRY_WHEN_FULL));
            status(Code::Unavailable, &message, details)
        }
        RequestError::Submit(SubmitError::Unavailable(error)) => unavailable(error),
        RequestError::Unroutable(unroutable) => unroutable_status(unroutable),
        RequestError::Submit(SubmitError::QueueFull { .. } | SubmitError::QueueBytesFull { .. }) => {
            full(&message, info("QUEUE_FULL", []))
        }
        RequestError::Submit(SubmitError::OwnerQueueFull { owner, .. }) => {
            full(&message, info("OWNER_QUEUE_FULL", [("owner", owner.to_string())]))
        }
        RequestError::Submit(SubmitError::Conflict { id }) => {
            status(Code::AlreadyExists, &message, info("QUERY_EXISTS", [("query_id", id.to_string())]))
        }
    }
}

/// There is no room now; there may be in a moment.
fn full(message: &str, mut details: ErrorDetails) -> Status {
    details.set_retry_info(Some(RETRY_WHEN_FULL));
    status(Code::ResourceExhausted, message, details)
}

fn unroutable_status(unroutable: &Unroutable) -> Status {
    invalid(unroutable.field(), unroutable.to_string())
}

pub(super) fn no_query(error: &QueryError) -> Status {
    match error {
        QueryError::NoSuchQuery(NoSuchQuery(id)) => {
            status(Code::NotFound, &error.to_string(), info("QUERY_NOT_FOUND", [("query_id", id.to_string())]))
        }
        QueryError::Unavailable(error) => unavailable(error),
    }
}

pub(super) fn unavailable(error: &Unavailable) -> Status {
    let mut details = info("BROKER_UNAVAILABLE", []);
    details.set_retry_info(Some(RETRY_WHEN_FULL));
    status(Code::Unavailable, &error.to_string(), details)
}

pub(super) fn no_dead_letter(error: DeadLetterError) -> Status {
    match error {
        DeadLetterError::NoSuchDeadLetter(NoSuchDeadLetter(ref id)) => {
            status(Code::NotFound, &error.to_string(), info("DEAD_LETTER_NOT_FOUND", [("query_id", id.to_string())]))
        }
        DeadLetterError::Submit(error) => refused(&RequestError::Submit(error)),
        DeadLetterError::Unavailable(error) => unavailable(&error),
    }
}

pub(super) fn not_requeued(error: RequeueError) -> Status {
    match error {
        RequeueError::Letter(error) => no_dead_letter(error),
        RequeueError::NotTaken(error) => refused(&error),
    }
}

pub(super) fn no_such_worker(id: WorkerId) -> Status {
    let message = format!("worker {id} is not known; ended workers are remembered for a while only");
    status(Code::NotFound, &message, info("WORKER_NOT_FOUND", [("worker_id", id.to_string())]))
}

pub(super) fn no_such_kind(kind: &str, known: &[std::sync::Arc<str>]) -> Status {
    let message = format!("there is no kind {kind:?}; this pool has: {}", known.join(", "));
    status(Code::NotFound, &message, info("KIND_NOT_FOUND", [("kind", kind.to_owned())]))
}

pub(super) fn not_granted(error: AdminError) -> Status {
    let message = error.to_string();
    let of_worker = |reason, id: WorkerId| info(reason, [("worker_id", id.to_string())]);
    let (code, details) = match error {
        AdminError::NoSuchKind { kind, .. } => (Code::NotFound, info("KIND_NOT_FOUND", [("kind", kind)])),
        AdminError::NoSuchWorker(id) => (Code::NotFound, of_worker("WORKER_NOT_FOUND", id)),
        AdminError::OutOfRange { field, asked, limit } => {
            let description = format!("{asked} is out of range; {limit}");
            let mut details = info("OUT_OF_RANGE", [("asked", asked)]);
            details.add_bad_request_violation(field, description);
            (Code::OutOfRange, details)
        }
        AdminError::Busy { worker, query } => {
            let facts = [("worker_id", worker.to_string()), ("query_id", query.to_string())];
            (Code::FailedPrecondition, info("WORKER_BUSY", facts))
        }
        AdminError::AtMinimum { kind, min } => {
            let facts = [("kind", kind.to_string()), ("min", min.to_string())];
            (Code::FailedPrecondition, info("AT_MINIMUM", facts))
        }
        AdminError::NotInService { worker, .. } => {
            (Code::FailedPrecondition, of_worker("WORKER_NOT_IN_SERVICE", worker))
        }
        AdminError::Stopping(id) => (Code::FailedPrecondition, of_worker("WORKER_STOPPING", id)),
        AdminError::ShuttingDown => (Code::Unavailable, info("SHUTDOWN", [])),
        AdminError::NoConfigFile => (Code::FailedPrecondition, info("NO_CONFIG_FILE", [])),
        AdminError::BadConfig(_) => {
            return Status::with_error_details(
                Code::InvalidArgument,
                cut(&message, MAX_MISTAKES),
                info("BAD_CONFIG", []),
            );
        }
    };
    status(code, &message, details)
}

/// The status that ends an Execute whose query ended like this; `None` for a result.
pub(super) fn ending(outcome: &Outcome) -> Option<Status> {
    Some(match outcome {
        Outcome::Complete { .. } => return None,
        Outcome::Error(failure) => failed(failure),
        Outcome::Cancelled { reason, stage } => {
            let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let message = format!("the query was cancelled{why}");
            status(Code::Cancelled, &message, info("CANCELLED", [("stage", stage.to_string())]))
        }
        Outcome::Rejected { reason, message } => match reason {
            RejectReason::Deadline => status(Code::DeadlineExceeded, message, info("QUEUE_DEADLINE", [])),
            RejectReason::Shutdown => status(Code::Unavailable, message, info("SHUTDOWN", [])),
            RejectReason::CircuitOpen => status(Code::Unavailable, message, info("CIRCUIT_OPEN", [])),
            RejectReason::Busy => full(message, info("BUSY", [])),
            RejectReason::Shed => full(message, info("SHED", [])),
        },
    })
}

fn failed(failure: &Failure) -> Status {
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
        facts.push(("worker_code", cut(worker_code, MAX_QUOTED)));
    }
    status(code, &failure.message, info(reason, facts))
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

/// A status with nothing but a reason.
pub(super) fn plain(code: Code, message: &str, reason: &str) -> Status {
    status(code, message, info(reason, []))
}

fn info<'a>(reason: &str, metadata: impl IntoIterator<Item = (&'a str, String)>) -> ErrorDetails {
    let metadata: HashMap<String, String> = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ErrorDetails::with_error_info(reason, DOMAIN, metadata)
}

fn status(code: Code, message: &str, details: ErrorDetails) -> Status {
    Status::with_error_details(code, cut(message, MAX_STATUS_MESSAGE), details)
}

/// At most `max` bytes, whole characters.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
