//! Lines byte for byte: those of the first nine-line protocol, and those with every field added since.

use std::borrow::Cow;

use bytes::BytesMut;

use super::super::{FrameType, JsonText, PoolFrame, WorkerFrame};
use super::encoded;

fn bare_query(payload: &str) -> PoolFrame<'_> {
    PoolFrame::Query {
        request_id: "abc",
        payload,
        attempt: None,
        query_type: None,
        key: None,
        session_id: None,
        timeout_ms: None,
        traceparent: None,
    }
}

#[track_caller]
fn parsed(line: &str) -> WorkerFrame<'_> {
    WorkerFrame::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn first_protocol_from_the_pool_is_written_byte_for_byte() {
    let shutdown = PoolFrame::Shutdown { graceful: true, grace_ms: None };
    let transcript = [
        (bare_query(r#"{"a":1}"#), r#"{"type":"query","requestId":"abc","payload":{"a":1}}"#),
        (PoolFrame::Cancel { request_id: "abc", reason: None }, r#"{"type":"cancel","requestId":"abc"}"#),
        (shutdown, r#"{"type":"shutdown","graceful":true}"#),
        (PoolFrame::HealthCheck, r#"{"type":"health_check"}"#),
    ];
    for (frame, line) in transcript {
        assert_eq!(encoded(&frame), format!("{line}\n"));
    }
}

#[test]
fn first_protocol_from_the_worker_is_understood() {
    let transcript = [
        (
            r#"{"type":"ready"}"#,
            WorkerFrame::Ready { protocol: None, name: None, version: None, capabilities: vec![], heartbeat: None },
        ),
        (
            r#"{"type":"session","requestId":"abc","sessionId":"xyz"}"#,
            WorkerFrame::Session { request_id: "abc".into(), session_id: "xyz".into() },
        ),
        (
            r#"{"type":"message","requestId":"abc","content":{"text":"hi"}}"#,
            WorkerFrame::Message { request_id: "abc".into(), content: r#"{"text":"hi"}"# },
        ),
        (
            r#"{"type":"complete","requestId":"abc","result":{"ok":true}}"#,
            WorkerFrame::Complete { request_id: "abc".into(), result: r#"{"ok":true}"# },
        ),
        (
            r#"{"type":"error","requestId":"abc","error":"..."}"#,
            WorkerFrame::Error {
                request_id: "abc".into(),
                error: "...".into(),
                code: None,
                retryable: None,
                details: None,
            },
        ),
        (r#"{"type":"shutdown_ack"}"#, WorkerFrame::ShutdownAck),
        (
            r#"{"type":"health_ok","uptime":123,"queriesProcessed":5}"#,
            WorkerFrame::HealthOk { uptime: 123.0, queries_processed: 5 },
        ),
    ];
    for (line, frame) in transcript {
        assert_eq!(parsed(line), frame);
    }
}

#[test]
fn optional_fields_from_the_pool_are_written_in_order() {
    let query = PoolFrame::Query {
        request_id: "q\"1",
        payload: "[1, 2]",
        attempt: Some(2),
        query_type: Some("chat"),
        key: Some("work\nspace"),
        session_id: Some("s-1"),
        timeout_ms: Some(30_000),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    };
    assert_eq!(
        encoded(&query),
        concat!(
            r#"{"type":"query","requestId":"q\"1","payload":[1, 2],"attempt":2,"#,
            r#""queryType":"chat","key":"work\nspace","sessionId":"s-1","timeoutMs":30000,"#,
            r#""traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#,
            "\n"
        )
    );
    assert_eq!(
        encoded(&PoolFrame::Cancel { request_id: "a", reason: Some("timeout") }),
        "{\"type\":\"cancel\",\"requestId\":\"a\",\"reason\":\"timeout\"}\n"
    );
    assert_eq!(
        encoded(&PoolFrame::Shutdown { graceful: false, grace_ms: Some(5000) }),
        "{\"type\":\"shutdown\",\"graceful\":false,\"graceMs\":5000}\n"
    );
}

#[test]
fn optional_fields_from_the_worker_are_understood() {
    assert_eq!(
        parsed(concat!(
            r#"{"type":"ready","protocol":1,"name":"e","version":"1.2","#,
            r#""capabilities":["a","\u0062"],"heartbeat":true}"#
        )),
        WorkerFrame::Ready {
            protocol: Some(1),
            name: Some("e".into()),
            version: Some("1.2".into()),
            capabilities: vec!["a".into(), "b".into()],
            heartbeat: Some(true),
        }
    );
    assert_eq!(
        parsed(r#"{"type":"heartbeat","state":"busy","memory":1048576,"cpu":0.5,"tasks":1}"#),
        WorkerFrame::Heartbeat { state: Some("busy".into()), memory: Some(1_048_576), cpu: Some(0.5), tasks: Some(1) }
    );
    assert_eq!(
        parsed(concat!(
            r#"{"type":"error","requestId":"a","error":"x","#,
            r#""code":"E1","retryable":false,"details":{ "n": 1.0 }}"#
        )),
        WorkerFrame::Error {
            request_id: "a".into(),
            error: "x".into(),
            code: Some("E1".into()),
            retryable: Some(false),
            details: Some(r#"{ "n": 1.0 }"#),
        }
    );
}

#[test]
fn raw_json_passes_unchanged_in_both_directions() {
    for raw in [
        "1.0e5",
        "-0.0",
        "1E+999",
        "12345678901234567890123",
        r#""\u00e9\/\ud83d\ude00 é 😀""#,
        r#"{ "b" : [ 1 ,2,	3 ] , "a":{"b":null,"b":null} }"#,
        "null",
        r#""""#,
    ] {
        let line = format!(r#"{{"type":"message","requestId":"a","content":  {raw}  }}"#);
        assert_eq!(parsed(&line), WorkerFrame::Message { request_id: "a".into(), content: raw });
        assert_eq!(JsonText::from_checked(raw).as_str(), raw);
        let expected = format!("{{\"type\":\"query\",\"requestId\":\"abc\",\"payload\":{raw}}}\n");
        assert_eq!(encoded(&bare_query(raw)), expected);
    }
}

#[test]
fn line_breaks_in_a_payload_become_spaces() {
    assert_eq!(
        encoded(&bare_query("{\r\n  \"a\\n\": [\n1\r]}\n")),
        "{\"type\":\"query\",\"requestId\":\"abc\",\"payload\":{    \"a\\n\": [ 1 ]} }\n"
    );
}

#[test]
fn frames_are_appended_to_what_is_there() {
    let mut out = BytesMut::from("before\r\n");
    PoolFrame::HealthCheck.encode(&mut out);
    bare_query("\n1").encode(&mut out);
    assert_eq!(
        out,
        concat!(
            "before\r\n",
            "{\"type\":\"health_check\"}\n",
            "{\"type\":\"query\",\"requestId\":\"abc\",\"payload\": 1}\n"
        )
    );
}

#[test]
fn absent_result_is_null() {
    let expected = WorkerFrame::Complete { request_id: "a".into(), result: "null" };
    assert_eq!(parsed(r#"{"type":"complete","requestId":"a"}"#), expected);
    assert_eq!(parsed(r#"{"type":"complete","requestId":"a","result":null}"#), expected);
}

#[test]
fn null_in_an_optional_field_counts_as_absent() {
    assert_eq!(
        parsed(r#"{"type":"ready","protocol":null,"name":null,"capabilities":null,"heartbeat":null}"#),
        parsed(r#"{"type":"ready"}"#)
    );
}

#[test]
fn numbers_may_be_written_as_floats_and_labels_as_numbers() {
    assert_eq!(
        parsed(r#"{"type":"health_ok","uptime":1.5e1,"queriesProcessed":5.0}"#),
        WorkerFrame::HealthOk { uptime: 15.0, queries_processed: 5 }
    );
    let WorkerFrame::Error { code, .. } = parsed(r#"{"type":"error","requestId":"a","error":"x","code":-32000}"#)
    else {
        panic!("not an error frame");
    };
    assert_eq!(code.as_deref(), Some("-32000"));
}

#[test]
fn error_text_may_be_any_json_string() {
    for (raw, text) in [
        (r#""""#, ""),
        (r#""a\"b\\\n\u00e9\ud83d\ude00""#, "a\"b\\\né😀"),
        (r#""caf\udce9.txt""#, "caf\u{fffd}\u{fffd}\u{fffd}.txt"),
    ] {
        let line = format!(r#"{{"type":"error","requestId":"a","error":{raw}}}"#);
        let WorkerFrame::Error { error, .. } = parsed(&line) else { panic!("not an error frame") };
        assert_eq!(error, text);
    }
}

#[test]
fn strings_without_escapes_are_borrowed() {
    let WorkerFrame::Message { request_id, .. } = parsed(r#"{"type":"message","requestId":"abc","content":1}"#) else {
        panic!("not a message frame");
    };
    assert!(matches!(request_id, Cow::Borrowed("abc")));
}

#[test]
fn names_and_types_may_be_escaped() {
    assert_eq!(parsed(r#"{"\u0074ype":"shutdown\u005fack"}"#), WorkerFrame::ShutdownAck);
}

#[test]
fn fields_of_other_frames_are_not_looked_at() {
    let line = r#"{"type":"shutdown_ack","requestId":7,"uptime":"long","x":[{}]}"#;
    assert_eq!(parsed(line), WorkerFrame::ShutdownAck);
}

#[test]
fn frame_tells_its_type_and_request() {
    let cases = [
        (r#"{"type":"ready"}"#, FrameType::Ready, None),
        (r#"{"type":"session","requestId":"a","sessionId":"b"}"#, FrameType::Session, Some("a")),
        (r#"{"type":"message","requestId":"a","content":0}"#, FrameType::Message, Some("a")),
        (r#"{"type":"complete","requestId":"a"}"#, FrameType::Complete, Some("a")),
        (r#"{"type":"error","requestId":"a","error":""}"#, FrameType::Error, Some("a")),
        (r#"{"type":"heartbeat"}"#, FrameType::Heartbeat, None),
        (r#"{"type":"health_ok","uptime":0,"queriesProcessed":0}"#, FrameType::HealthOk, None),
        (r#"{"type":"shutdown_ack"}"#, FrameType::ShutdownAck, None),
    ];
    for (line, frame_type, request_id) in cases {
        let frame = parsed(line);
        assert_eq!((frame.frame_type(), frame.request_id()), (frame_type, request_id));
        assert!(line.contains(&format!(r#""type":"{}""#, frame.type_name())));
    }
}
