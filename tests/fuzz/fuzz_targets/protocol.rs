//! The worker protocol on whatever bytes libFuzzer finds, with `serde_json::Value` as the oracle.
//!
//! An input is four bytes that steer, then what a worker or a client sent. From the repository's root:
//!
//! ```sh
//! mkdir -p tests/fuzz/corpus
//! cargo fuzz run --fuzz-dir tests/fuzz -s none protocol tests/fuzz/corpus tests/fuzz/seeds -- \
//!   -dict=tests/fuzz/json.dict -max_len=512
//! ```
#![no_main]

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use remuda::protocol::{JsonError, JsonText, LineBuffer, PoolFrame, ProtocolError, READ_CHUNK_BYTES, WorkerFrame};
use serde::de::IgnoredAny;
use serde_json::value::{RawValue, Value};
use serde_json::{from_slice, from_str};

fuzz_target!(|input: &[u8]| {
    let Some((&[limit, steps @ ..], bytes)) = input.split_first_chunk::<4>() else { return };
    // `Value` reads something else into an object with the private key of `RawValue`.
    if bytes.windows(15).any(|window| window == b"json::private::") {
        return;
    }
    check_lines(bytes, if limit == b'~' { usize::MAX } else { limit.into() }, steps);
    bytes.split(|&byte| byte == b'\n').for_each(check_frame);
    check_text(bytes);
});

/// However the bytes arrive and however late lines are taken, the same lines and errors come out.
fn check_lines(bytes: &[u8], max_line_bytes: usize, steps: [u8; 3]) {
    let takes = [usize::MAX, 1, 0, usize::MAX][usize::from(steps[0] / 64)];
    let mut rest = bytes;
    let lengths = steps.into_iter().cycle().take(300).map(|step| usize::from(step % 64));
    let mut reads: Vec<_> = lengths.map_while(|length| rest.split_off(..length)).collect();
    reads.extend(rest.chunks(READ_CHUNK_BYTES));
    let whole: Vec<_> = bytes.chunks(READ_CHUNK_BYTES).collect();
    assert_eq!(transcript(&reads, max_line_bytes, takes), transcript(&whole, max_line_bytes, usize::MAX));
}

/// Takes up to `takes` lines after each read, and the others at the end.
fn transcript(reads: &[&[u8]], max_line_bytes: usize, takes: usize) -> (Vec<Vec<u8>>, Result<(), ProtocolError>) {
    let mut lines = LineBuffer::new(max_line_bytes);
    let mut seen = Vec::new();
    for (read, takes) in reads.iter().map(|read| (*read, takes)).chain([(&[][..], usize::MAX)]) {
        lines.spare().put_slice(read);
        for _ in 0..takes {
            match lines.next_line() {
                Ok(Some(line)) => seen.push(line.to_vec()),
                Ok(None) => break,
                Err(error) => {
                    lines.spare().put_slice(b"\n{}\n");
                    assert_eq!(lines.next_line(), Err(error.clone()));
                    break;
                }
            }
        }
    }
    (seen, lines.finish())
}

/// A line means what a full JSON parser reads in it.
fn check_frame(line: &[u8]) {
    let parsed = WorkerFrame::parse(line);
    let Ok(value) = from_slice::<Value>(line) else {
        // Numbers, depth and surrogates can be beyond what `Value` holds.
        return assert!(parsed.is_err() || from_slice::<IgnoredAny>(line).is_ok());
    };
    if matches!(parsed, Err(ProtocolError::DuplicateField { .. })) {
        return check_frame(value.to_string().as_bytes()); // There each field stands once.
    }
    assert_eq!(parsed.is_ok(), is_frame(&value), "{parsed:?}");
    let Ok(frame) = parsed else { return };
    assert_eq!(value["type"], frame.type_name());
    assert!(frame.request_id().is_none_or(|id| value["requestId"] == id));
    let twice = [line.trim_ascii_end().strip_suffix(b"}").unwrap(), br#","type":0}"#].concat();
    assert!(matches!(WorkerFrame::parse(&twice), Err(ProtocolError::DuplicateField { field: "type", .. })));
    let (name, raw) = match frame {
        WorkerFrame::Message { content, .. } => ("content", content),
        WorkerFrame::Complete { result, .. } => ("result", result),
        WorkerFrame::Error { details, .. } => ("details", details.unwrap_or("null")),
        _ => return,
    };
    assert_eq!(value[name], from_str::<Value>(JsonText::from_checked(raw).as_str()).unwrap());
}

/// The table at the head of `protocol`, once more.
const FRAMES: [(&str, &str); 8] = [
    ("ready", "protocol?version name?text version?label capabilities?texts heartbeat?flag"),
    ("session", "requestId:text sessionId:text"),
    ("message", "requestId:text content:any"),
    ("complete", "requestId:text result?any"),
    ("error", "requestId:text error:text code?label retryable?flag details?any"),
    ("heartbeat", "state?text memory?count cpu?number tasks?count"),
    ("health_ok", "uptime:number queriesProcessed:count"),
    ("shutdown_ack", ""),
];

fn is_frame(value: &Value) -> bool {
    let is_field = |field: &str| {
        let (name, kind) = field.split_once([':', '?']).unwrap();
        let given = value.get(name).filter(|given| field.contains(':') || !given.is_null());
        given.map_or(field.contains('?'), |given| is_kind(given, kind))
    };
    let known = FRAMES.iter().find(|(name, _)| value["type"] == *name);
    known.is_some_and(|(_, fields)| fields.split_whitespace().all(is_field))
}

fn is_kind(value: &Value, kind: &str) -> bool {
    let is_whole = |number: f64| number.fract() == 0.0 && (0.0..=2_f64.powi(53)).contains(&number);
    match kind {
        "text" => value.is_string(),
        "label" => value.is_string() || value.is_number(),
        "texts" => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        "flag" => value.is_boolean(),
        "number" => value.is_number(),
        "count" => value.is_u64() || value.as_f64().is_some_and(is_whole),
        "version" => is_kind(value, "count") && value.as_f64() <= Some(u32::MAX.into()),
        any => any == "any",
    }
}

/// Exactly the JSON texts are accepted, and each travels unharmed in one line both ways.
fn check_text(bytes: &[u8]) {
    let is_json = str::from_utf8(bytes).is_ok() && from_slice::<IgnoredAny>(bytes).is_ok();
    let is_readable = is_json && from_slice::<Value>(&[b"[", bytes, b"]"].concat()).is_ok(); // As deep as in a frame.
    let text = match JsonText::parse(bytes.to_vec()) {
        Ok(text) => text,
        Err(error) => return assert_eq!((matches!(error, JsonError::TooDeep { .. }), is_readable), (is_json, false)),
    };
    assert!(is_json);
    let inline = text.as_str().replace(['\n', '\r'], " ");
    let trimmed = inline.trim_matches([' ', '\t']);
    let message = format!(r#"{{"content":{inline},"type":"message","requestId":"a"}}"#);
    let expected = WorkerFrame::Message { request_id: "a".into(), content: trimmed };
    assert_eq!(WorkerFrame::parse(message.as_bytes()), Ok(expected));
    // The text is the payload and, because that may be any string, the key.
    let (request_id, payload, key) = ("a", text.as_str(), Some(text.as_str()));
    let (attempt, query_type, session_id, timeout_ms, traceparent) = (None, None, None, None, None);
    let mut line = BytesMut::new();
    PoolFrame::Query { request_id, payload, attempt, query_type, key, session_id, timeout_ms, traceparent }
        .encode(&mut line);
    assert_eq!(line.iter().position(|byte| b"\r\n".contains(byte)), Some(line.len() - 1));
    let fields: BTreeMap<String, &RawValue> = from_slice(&line).unwrap();
    assert!(fields.keys().eq(["key", "payload", "requestId", "type"]), "{fields:?}");
    assert_eq!(from_str::<String>(fields["key"].get()).unwrap(), text.as_str());
    assert_eq!(fields["payload"].get(), trimmed);
    assert_eq!(from_slice::<Value>(&line).ok().map(|line| line["payload"].clone()), from_slice(bytes).ok());
}
