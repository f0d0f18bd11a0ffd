//! Every way in which a frame can be wrong, and the text that tells its author.

use super::super::WorkerFrame;

/// Checks the whole text, which ends in a quote of the line.
#[track_caller]
fn refused(line: &str, expected: &str) {
    let error = WorkerFrame::parse(line.as_bytes()).expect_err("the line is malformed").to_string();
    assert_eq!(error, format!("{expected}; line began: {line}"));
}

const KNOWN: &str = "known: ready, session, message, complete, error, heartbeat, health_ok, shutdown_ack";

#[test]
fn text_that_is_not_json() {
    refused("hello", "invalid JSON at column 1: expected value");
    refused(r#"{"type":"ready""#, "invalid JSON at column 15: EOF while parsing an object");
    refused(r#"{"type":"ready",}"#, "invalid JSON at column 17: trailing comma");
    refused(r#"{"type":"message","content":[1,}"#, "invalid JSON at column 32: expected value");
    refused(r#"{"x":nul,"type":"ready"}"#, "invalid JSON at column 9: expected ident");
}

#[test]
fn two_frames_on_one_line() {
    refused(r#"{"type":"ready"}{"type":"ready"}"#, "invalid JSON at column 17: trailing characters");
}

#[test]
fn bytes_that_are_not_utf8() {
    let error = WorkerFrame::parse(b"{\"type\":\"ready\",\"x\":\"\xff\"}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line is not valid UTF-8 at column 22; line began: {\"type\":\"ready\",\"x\":\"\u{fffd}\"}"
    );
}

#[test]
fn json_that_is_not_an_object() {
    for line in ["null", "[]", r#"["ready"]"#, r#""ready""#, "1", "true"] {
        refused(line, "frame is not a JSON object");
    }
}

#[test]
fn type_missing_or_not_a_string() {
    for line in ["{}", r#"{"requestId":"a"}"#, r#"{"type":1}"#, r#"{"type":null}"#, r#"{"type":["ready"]}"#] {
        refused(line, &format!(r#"frame has no "type" that is a string; {KNOWN}"#));
    }
}

#[test]
fn type_unknown() {
    refused(r#"{"type":"mesage","requestId":"a"}"#, &format!(r#"unknown frame type "mesage"; {KNOWN}"#));
    refused(r#"{"type":"Ready"}"#, &format!(r#"unknown frame type "Ready"; {KNOWN}"#));
    refused(r#"{"type":""}"#, &format!(r#"unknown frame type ""; {KNOWN}"#));
}

#[test]
fn endless_type_does_not_flood_the_error() {
    let line = format!(r#"{{"type":"\n{}"}}"#, "x".repeat(100_000));
    let error = WorkerFrame::parse(line.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with(r#"unknown frame type "\nxxx"#), "{error}");
    assert!(error.len() < 500, "{error}");
}

#[test]
fn field_given_twice() {
    refused(r#"{"type":"ready","type":"ready"}"#, r#"frame has the field "type" twice"#);
    refused(r#"{"type":"message","content":1,"requestId":"a","content":2}"#, r#"frame has the field "content" twice"#);
}

#[test]
fn unknown_field_given_twice_is_ignored() {
    assert_eq!(WorkerFrame::parse(br#"{"x":1,"x":2,"type":"shutdown_ack"}"#), Ok(WorkerFrame::ShutdownAck));
}

#[test]
fn required_field_missing() {
    for (frame_type, fields, missing) in [
        ("session", r#""sessionId":"s""#, "requestId"),
        ("session", r#""requestId":"a""#, "sessionId"),
        ("message", r#""content":1"#, "requestId"),
        ("message", r#""requestId":"a""#, "content"),
        ("complete", r#""result":1"#, "requestId"),
        ("error", r#""error":"x""#, "requestId"),
        ("error", r#""requestId":"a""#, "error"),
        ("health_ok", r#""queriesProcessed":1"#, "uptime"),
        ("health_ok", r#""uptime":1"#, "queriesProcessed"),
    ] {
        let line = format!(r#"{{"type":"{frame_type}",{fields}}}"#);
        refused(&line, &format!(r#""{frame_type}" frame lacks the field "{missing}""#));
    }
}

#[track_caller]
fn refused_field(frame_type: &str, fields: &str, wrong: &str, expected: &str) {
    let line = format!(r#"{{"type":"{frame_type}",{fields}}}"#);
    let text = format!(r#"field "{wrong}" of a "{frame_type}" frame must be {expected}"#);
    refused(&line, &text);
}

#[test]
fn string_of_a_wrong_type() {
    refused_field("message", r#""requestId":7,"content":1"#, "requestId", "a string");
    refused_field("message", r#""requestId":null,"content":1"#, "requestId", "a string");
    refused_field("error", r#""requestId":"a","error":{}"#, "error", "a string");
    let label = "a string or a number";
    refused_field("error", r#""requestId":"a","error":"","code":[]"#, "code", label);
    refused_field("ready", r#""version":true"#, "version", label);
    let strings = "an array of strings";
    refused_field("ready", r#""capabilities":"a""#, "capabilities", strings);
    refused_field("ready", r#""capabilities":["a",1]"#, "capabilities", strings);
}

#[test]
fn number_or_flag_of_a_wrong_type() {
    let whole = "a whole number, not negative";
    refused_field("ready", r#""protocol":"1""#, "protocol", whole);
    refused_field("ready", r#""protocol":4294967296"#, "protocol", whole);
    refused_field("heartbeat", r#""memory":-1"#, "memory", whole);
    refused_field("heartbeat", r#""tasks":1.5"#, "tasks", whole);
    refused_field("health_ok", r#""uptime":1,"queriesProcessed":1e30"#, "queriesProcessed", whole);
    refused_field("heartbeat", r#""cpu":"50%""#, "cpu", "a number");
    refused_field("heartbeat", r#""cpu":1e999"#, "cpu", "a number");
    refused_field("health_ok", r#""uptime":true,"queriesProcessed":1"#, "uptime", "a number");
    let flag = "true or false";
    refused_field("error", r#""requestId":"a","error":"","retryable":1"#, "retryable", flag);
    refused_field("ready", r#""heartbeat":5"#, "heartbeat", flag);
}

#[test]
fn deeply_nested_content_neither_overflows_the_stack_nor_fails() {
    let content = "[".repeat(100_000) + &"]".repeat(100_000);
    let line = format!(r#"{{"type":"message","requestId":"a","content":{content}}}"#);
    let expected = WorkerFrame::Message { request_id: "a".into(), content: &content };
    assert_eq!(WorkerFrame::parse(line.as_bytes()), Ok(expected));
}

#[test]
fn half_a_surrogate_pair_in_a_field_name_is_no_protocol_error() {
    let frame = WorkerFrame::parse(br#"{"type":"ready","caf\udce9":1}"#);
    assert!(matches!(frame, Ok(WorkerFrame::Ready { .. })), "{frame:?}");
}
