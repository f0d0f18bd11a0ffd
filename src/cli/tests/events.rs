//! Tests of the output of events.

use prost_types::{Duration, Timestamp};

use crate::{
    api::proto::{
        CancelledEvent, CompleteEvent, DeathCertificate, ErrorEvent, ErrorReason, Event, GapEvent, MessageEvent,
        RejectReason, RejectedEvent, RetryingEvent, SessionEvent, StopStage, event::Body,
    },
    cli::{
        event::{EventNotice, EventView, RenderedEvent, render},
        exit::CliExit,
    },
};

fn event(body: Body) -> Event {
    Event { sequence: 3, attempt: 1, at: Some(Timestamp { seconds: 0, nanos: 5_000_000 }), body: Some(body) }
}

fn content(body: Body) -> RenderedEvent {
    render("q", &event(body), EventView::Content)
}

fn line(body: Body) -> String {
    render("q", &event(body), EventView::Events).line.unwrap()
}

fn message(content: &str) -> Body {
    Body::Message(MessageEvent { content: content.to_owned() })
}

fn error() -> ErrorEvent {
    ErrorEvent { reason: ErrorReason::Reported.into(), message: "no luck".to_owned(), ..Default::default() }
}

fn retrying() -> RetryingEvent {
    RetryingEvent {
        failed_attempt: 1,
        max_attempts: 3,
        message: "worker 7 died".to_owned(),
        delay: Some(Duration { seconds: 2, nanos: 0 }),
        certificate: None,
    }
}

fn error_text(error: ErrorEvent) -> String {
    let rendered = content(Body::Error(error));
    assert_eq!((rendered.line, rendered.exit), (None, Some(CliExit::Failed)));
    let Some(EventNotice::Error(text)) = rendered.notice else { panic!("no text") };
    text
}

#[test]
fn messages_and_the_result_are_printed_byte_for_byte() {
    assert_eq!(
        content(message("{\"a\": 1.0}")),
        RenderedEvent { line: Some("{\"a\": 1.0}".to_owned()), ..Default::default() }
    );
    assert_eq!(
        content(Body::Complete(CompleteEvent { result: "null".to_owned() })),
        RenderedEvent { line: Some("null".to_owned()), notice: None, exit: Some(CliExit::Done) }
    );
}

#[test]
fn content_with_line_breaks_comes_on_one_line() {
    assert_eq!(content(message("{\n\"a\":\r\n1}")).line.unwrap(), "{ \"a\":  1}");
    assert!(line(message("{\n\"a\":\r\n1}")).ends_with("\"content\":{ \"a\":  1}}"));
}

#[test]
fn whole_events_have_sequence_attempt_and_type() {
    let head = r#"{"query_id":"q","sequence":3,"attempt":1,"at":"1970-01-01T00:00:00.005Z","type":"#;
    let lines = [
        (message("[1.0, 2]"), r#""message","content":[1.0, 2]}"#),
        (message("not json"), r#""message","content":"not json"}"#),
        (Body::Complete(CompleteEvent { result: "7".to_owned() }), r#""complete","result":7}"#),
        (Body::Session(SessionEvent { session_id: "s".to_owned() }), r#""session","session_id":"s"}"#),
        (Body::Gap(GapEvent { first: 0, last: 3 }), r#""gap","first":0,"last":3}"#),
        (
            Body::Cancelled(CancelledEvent { reason: "r".to_owned(), stage: StopStage::CancelFrame.into() }),
            r#""cancelled","reason":"r","stage":"cancel_frame"}"#,
        ),
        (
            Body::Rejected(RejectedEvent { reason: RejectReason::Deadline.into(), message: "late".to_owned() }),
            r#""rejected","reason":"deadline","message":"late"}"#,
        ),
        (
            Body::Error(ErrorEvent { details: "{}".to_owned(), ..error() }),
            r#""error","reason":"reported","message":"no luck","code":null,"retryable":false,"details":{},"certificate":null}"#,
        ),
        (
            Body::Retrying(retrying()),
            r#""retrying","failed_attempt":1,"max_attempts":3,"message":"worker 7 died","delay_seconds":2.0,"certificate":null}"#,
        ),
    ];
    for (body, tail) in lines {
        assert_eq!(line(body), format!("{head}{tail}"));
    }
    let unknown = render("q", &Event { body: None, ..event(message("1")) }, EventView::Events);
    assert_eq!(unknown.line.unwrap(), format!("{head}\"unknown\"}}"));
}

#[test]
fn failure_shows_all_its_details() {
    assert_eq!(error_text(error()), "query q failed: no luck");
    let all = ErrorEvent { code: "E7".to_owned(), retryable: true, details: "[1,\n2]".to_owned(), ..error() };
    assert_eq!(
        error_text(all),
        "query q failed: no luck (code E7)\n  the worker says that trying again may help\n  details: [1, 2]"
    );
}

#[test]
fn dead_worker_is_described_once_with_its_id() {
    let summary = "worker 7 (embed) was killed by SIGKILL after 3.2 s";
    let certificate = Some(DeathCertificate { worker_id: 7, summary: summary.to_owned(), ..Default::default() });
    let story = format!("{summary}; attempt 2 of 2");
    let died = ErrorEvent {
        reason: ErrorReason::WorkerDied.into(),
        message: story,
        certificate: certificate.clone(),
        ..error()
    };
    assert_eq!(
        error_text(died),
        format!("query q failed: {summary}; attempt 2 of 2\n  all about the worker: remuda workers 7")
    );
    let message = "it took too long".to_owned();
    let slow = ErrorEvent { reason: ErrorReason::TimedOut.into(), message, certificate, ..error() };
    assert!(error_text(slow).starts_with(&format!("query q failed: it took too long\n  {summary}\n")));
}

#[test]
fn final_events_have_their_exit_codes() {
    let cancelled = content(Body::Cancelled(CancelledEvent { reason: "enough".to_owned(), stage: 0 }));
    assert_eq!(cancelled.exit, Some(CliExit::Cancelled));
    assert_eq!(cancelled.notice, Some(EventNotice::Error("query q was cancelled: enough".to_owned())));
    let rejected = content(Body::Rejected(RejectedEvent { reason: 0, message: "too late".to_owned() }));
    assert_eq!(rejected.exit, Some(CliExit::Rejected));
    assert_eq!(rejected.notice, Some(EventNotice::Error("query q was rejected: too late".to_owned())));
}

#[test]
fn retries_and_gaps_are_noted_beside_the_data_but_not_twice() {
    let retrying = Body::Retrying(retrying());
    let note = "attempt 1 of 3 of query q failed, trying again in 2.0s: worker 7 died";
    let rendered = content(retrying.clone());
    assert_eq!((rendered.line, rendered.notice), (None, Some(EventNotice::Note(note.to_owned()))));
    assert_eq!(render("q", &event(retrying), EventView::Events).notice, None);
    let gap = content(Body::Gap(GapEvent { first: 0, last: 41 })).notice;
    assert_eq!(gap, Some(EventNotice::Note("events 0 to 41 of query q are no longer kept".to_owned())));
    assert_eq!(content(Body::Session(SessionEvent::default())), RenderedEvent::default());
}
