//! One event of a query: its line on standard output, its text on standard error, and the exit code.

use std::fmt::Write;

use super::{
    exit::{CliError, CliExit},
    format, json, output,
};
use crate::api::proto::{CancelledEvent, ErrorEvent, ErrorReason, Event, RejectedEvent, RetryingEvent, event::Body};

/// Content of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventView {
    /// Messages, and the result.
    Content,
    /// All events with all their fields.
    Events,
}

/// An event as it is printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RenderedEvent {
    pub line: Option<String>,
    pub notice: Option<EventNotice>,
    /// Exit code of the query, if this is its final event.
    pub exit: Option<CliExit>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventNotice {
    Note(String),
    Error(String),
}

impl EventView {
    pub(super) fn new(events: bool) -> Self {
        if events { Self::Events } else { Self::Content }
    }
}

/// Prints an event; returns the exit code if it is the final one.
pub(super) fn print(query_id: &str, event: &Event, view: EventView) -> Result<Option<CliExit>, CliError> {
    let rendered = render(query_id, event, view);
    if let Some(line) = rendered.line {
        output::line(&line)?;
    }
    match rendered.notice {
        Some(EventNotice::Note(text)) => output::note(&text),
        Some(EventNotice::Error(text)) => output::error(&text),
        None => {}
    }
    Ok(rendered.exit)
}

pub(super) fn render(query_id: &str, event: &Event, view: EventView) -> RenderedEvent {
    let rendered = render_content(query_id, event.body.as_ref());
    match view {
        EventView::Content => rendered,
        // The line holds all that a note would say; an error is printed as text as well.
        EventView::Events => RenderedEvent {
            line: Some(json::event(query_id, event).get().to_owned()),
            notice: rendered.notice.filter(|notice| matches!(notice, EventNotice::Error(_))),
            ..rendered
        },
    }
}

fn render_content(query_id: &str, body: Option<&Body>) -> RenderedEvent {
    match body {
        Some(Body::Message(message)) => RenderedEvent::line(&message.content),
        Some(Body::Complete(complete)) => {
            RenderedEvent { exit: Some(CliExit::Done), ..RenderedEvent::line(&complete.result) }
        }
        Some(Body::Error(error)) => {
            RenderedEvent::end(CliExit::Failed, format!("query {query_id} failed: {}", describe_error(error)))
        }
        Some(Body::Cancelled(CancelledEvent { reason, .. })) => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            RenderedEvent::end(CliExit::Cancelled, format!("query {query_id} was cancelled{reason}"))
        }
        Some(Body::Rejected(RejectedEvent { message, .. })) => {
            RenderedEvent::end(CliExit::Rejected, format!("query {query_id} was rejected: {message}"))
        }
        Some(Body::Retrying(retrying)) => RenderedEvent::note(describe_retry(query_id, retrying)),
        Some(Body::Gap(gap)) => {
            RenderedEvent::note(format!("events {} to {} of query {query_id} are no longer kept", gap.first, gap.last))
        }
        // A later server may send events that this command does not know.
        Some(Body::Session(_)) | None => RenderedEvent::default(),
    }
}

impl RenderedEvent {
    fn line(json: &str) -> Self {
        Self { line: Some(output::one_line(json).into_owned()), ..Self::default() }
    }

    fn note(text: String) -> Self {
        Self { notice: Some(EventNotice::Note(text)), ..Self::default() }
    }

    fn end(exit: CliExit, text: String) -> Self {
        Self { notice: Some(EventNotice::Error(text)), exit: Some(exit), line: None }
    }
}

/// The error and everything that helps to find its cause, one thing a line.
pub(super) fn describe_error(error: &ErrorEvent) -> String {
    let mut text = error.message.clone();
    if !error.code.is_empty() {
        let _ = write!(text, " (code {})", error.code);
    }
    if error.retryable {
        text.push_str("\n  the worker says that trying again may help");
    }
    if !error.details.is_empty() {
        let _ = write!(text, "\n  details: {}", output::one_line(&error.details));
    }
    if let Some(certificate) = &error.certificate {
        // If the worker died, the message contains the summary already.
        if error.reason() != ErrorReason::WorkerDied {
            let _ = write!(text, "\n  {}", certificate.summary);
        }
        let _ = write!(text, "\n  all about the worker: remuda workers {}", certificate.worker_id);
    }
    text
}

fn describe_retry(query_id: &str, retrying: &RetryingEvent) -> String {
    let RetryingEvent { failed_attempt, max_attempts, message, .. } = retrying;
    let when = match format::duration(retrying.delay.as_ref()) {
        Some(delay) if !delay.is_zero() => format!(" in {}", format::short_duration(Some(delay))),
        _ => String::new(),
    };
    format!("attempt {failed_attempt} of {max_attempts} of query {query_id} failed, trying again{when}: {message}")
}
