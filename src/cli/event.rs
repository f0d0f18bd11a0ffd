//! One event of a query: the line it is on standard output, the words about it on standard error, and the exit code.

use std::fmt::Write;

use serde::Serialize;

use super::{
    exit::{Exit, Failure},
    json::{self, Certificate, Raw},
    output, words,
};
use crate::api::proto::{CancelledEvent, ErrorEvent, ErrorReason, Event, RejectedEvent, RetryingEvent, event::Body};

/// What standard output gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// The content of messages, and the result.
    Content,
    /// Every event, whole.
    Events,
}

/// What an event is to the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rendered {
    pub line: Option<String>,
    pub remark: Option<Remark>,
    /// How the query ended, if this is its end.
    pub exit: Option<Exit>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remark {
    Note(String),
    Error(String),
}

impl Show {
    pub(super) fn of(events: bool) -> Self {
        if events { Self::Events } else { Self::Content }
    }
}

/// Prints an event and gives the exit code if it is the last one.
pub(super) fn print(query_id: &str, event: &Event, show: Show) -> Result<Option<Exit>, Failure> {
    let rendered = render(query_id, event, show);
    if let Some(line) = rendered.line {
        output::line(&line)?;
    }
    match rendered.remark {
        Some(Remark::Note(words)) => output::note(&words),
        Some(Remark::Error(words)) => output::error(&words),
        None => {}
    }
    Ok(rendered.exit)
}

pub(super) fn render(query_id: &str, event: &Event, show: Show) -> Rendered {
    let rendered = render_content(query_id, event.body.as_ref());
    match show {
        Show::Content => rendered,
        // The line says what a note would; how a query failed is said in words as well.
        Show::Events => Rendered {
            line: Some(json::line(&Line::new(query_id, event))),
            remark: rendered.remark.filter(|remark| matches!(remark, Remark::Error(_))),
            ..rendered
        },
    }
}

fn render_content(query_id: &str, body: Option<&Body>) -> Rendered {
    match body {
        Some(Body::Message(message)) => Rendered::line(&message.content),
        Some(Body::Complete(complete)) => Rendered { exit: Some(Exit::Done), ..Rendered::line(&complete.result) },
        Some(Body::Error(error)) => Rendered::end(Exit::Failed, failed(query_id, error)),
        Some(Body::Cancelled(cancelled)) => Rendered::end(Exit::Cancelled, was_cancelled(query_id, cancelled)),
        Some(Body::Rejected(RejectedEvent { message, .. })) => {
            Rendered::end(Exit::Rejected, format!("query {query_id} was rejected: {message}"))
        }
        Some(Body::Retrying(retrying)) => Rendered::note(tries_again(query_id, retrying)),
        Some(Body::Gap(gap)) => {
            Rendered::note(format!("events {} to {} of query {query_id} are no longer kept", gap.first, gap.last))
        }
        // What a later server may send besides is not for this command.
        Some(Body::Session(_)) | None => Rendered::default(),
    }
}

impl Rendered {
    fn line(json: &str) -> Self {
        Self { line: Some(output::one_line(json).into_owned()), ..Self::default() }
    }

    fn note(words: String) -> Self {
        Self { remark: Some(Remark::Note(words)), ..Self::default() }
    }

    fn end(exit: Exit, words: String) -> Self {
        Self { remark: Some(Remark::Error(words)), exit: Some(exit), line: None }
    }
}

fn failed(query_id: &str, error: &ErrorEvent) -> String {
    format!("query {query_id} failed: {}", failure(error))
}

/// What went wrong and all that helps, one thing a line.
pub(super) fn failure(error: &ErrorEvent) -> String {
    let mut words = error.message.clone();
    if !error.code.is_empty() {
        let _ = write!(words, " (code {})", error.code);
    }
    if error.retryable {
        words.push_str("\n  the worker says that trying again may help");
    }
    if !error.details.is_empty() {
        let _ = write!(words, "\n  details: {}", output::one_line(&error.details));
    }
    if let Some(certificate) = &error.certificate {
        // Of a worker that died, the message itself tells the certificate's story.
        if error.reason() != ErrorReason::WorkerDied {
            let _ = write!(words, "\n  {}", certificate.summary);
        }
        let _ = write!(words, "\n  all about the worker: remuda workers {}", certificate.worker_id);
    }
    words
}

fn was_cancelled(query_id: &str, cancelled: &CancelledEvent) -> String {
    match cancelled.reason.as_str() {
        "" => format!("query {query_id} was cancelled"),
        reason => format!("query {query_id} was cancelled: {reason}"),
    }
}

fn tries_again(query_id: &str, retrying: &RetryingEvent) -> String {
    let RetryingEvent { failed_attempt, max_attempts, message, .. } = retrying;
    let when = match words::duration(retrying.delay.as_ref()) {
        Some(delay) if !delay.is_zero() => format!(" in {}", words::rough(Some(delay))),
        _ => String::new(),
    };
    format!("attempt {failed_attempt} of {max_attempts} of query {query_id} failed, trying again{when}: {message}")
}

/// A whole event as a line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    query_id: &'a str,
    sequence: u64,
    attempt: u32,
    at: String,
    #[serde(flatten)]
    body: LineBody<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum LineBody<'a> {
    Session {
        session_id: &'a str,
    },
    Message {
        content: Raw,
    },
    Retrying {
        failed_attempt: u32,
        max_attempts: u32,
        message: &'a str,
        delay_seconds: f64,
        certificate: Option<Certificate<'a>>,
    },
    Complete {
        result: Raw,
    },
    Error(json::Error<'a>),
    Cancelled {
        reason: &'a str,
        stage: String,
    },
    Rejected {
        reason: String,
        message: &'a str,
    },
    Gap {
        first: u64,
        last: u64,
    },
    Unknown,
}

impl<'a> Line<'a> {
    fn new(query_id: &'a str, event: &'a Event) -> Self {
        let (sequence, attempt, at) = (event.sequence, event.attempt, words::time(event.at.as_ref()));
        Self { query_id, sequence, attempt, at, body: event.body.as_ref().map_or(LineBody::Unknown, LineBody::from) }
    }
}

impl<'a> From<&'a Body> for LineBody<'a> {
    fn from(body: &'a Body) -> Self {
        match body {
            Body::Session(session) => Self::Session { session_id: &session.session_id },
            Body::Message(message) => Self::Message { content: Raw::new(&message.content) },
            Body::Retrying(retrying) => Self::Retrying {
                failed_attempt: retrying.failed_attempt,
                max_attempts: retrying.max_attempts,
                message: &retrying.message,
                delay_seconds: words::duration(retrying.delay.as_ref()).unwrap_or_default().as_secs_f64(),
                certificate: retrying.certificate.as_ref().map(Certificate::from),
            },
            Body::Complete(complete) => Self::Complete { result: Raw::new(&complete.result) },
            Body::Error(error) => Self::Error(json::Error::from(error)),
            Body::Cancelled(end) => Self::Cancelled { reason: &end.reason, stage: words::stage(end.stage) },
            Body::Rejected(end) => Self::Rejected { reason: words::reject_reason(end.reason), message: &end.message },
            Body::Gap(gap) => Self::Gap { first: gap.first, last: gap.last },
        }
    }
}
