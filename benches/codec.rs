//! Cost of turning a worker's bytes into frames, beside the cutting of lines and `serde_json` alone.

use std::{borrow::Cow, hint::black_box};

use bytes::{BufMut, BytesMut};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use remuda::protocol::{LineBuffer, PoolFrame, READ_CHUNK_BYTES, WorkerFrame};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Lines of 200 bytes and of 64 KiB, without their newline.
const LINE_BYTES: [usize; 2] = [200, 64 * 1024];

/// Enough for many reads, so that lines straddle them as they do on a socket.
const STREAM_BYTES: usize = 4 * 1024 * 1024;

fn main() {
    divan::main();
}

/// A message frame of exactly `length` bytes whose content looks like a chat's.
fn message(length: usize) -> String {
    const HEAD: &str = concat!(
        r#"{"type":"message","requestId":"01J9ZK3V5W8Q2N4R6T8Y0A2C4E","#,
        r#""content":{"role":"assistant","text":""#
    );
    const TAIL: &str = r#"","index":42,"final":false}}"#;
    const PROSE: &str = r#"Ponies don't wait: \"the herd\" is saddled before dawn.\n"#;
    let filler = length - HEAD.len() - TAIL.len();
    let mut prose = PROSE.repeat(filler / PROSE.len());
    prose.push_str(&"x".repeat(filler - prose.len()));
    [HEAD, &prose, TAIL].concat()
}

fn stream(line_bytes: usize) -> (String, usize) {
    let lines = STREAM_BYTES / line_bytes;
    ((message(line_bytes) + "\n").repeat(lines), lines)
}

/// A message frame, as a program would declare it that knows nothing faster.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read only to be measured")]
struct Envelope<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    request_id: Cow<'a, str>,
    #[serde(borrow)]
    content: &'a RawValue,
}

fn counted(bencher: Bencher<'_, '_>, line_bytes: usize, run: impl Fn(&[u8]) + Sync) {
    let (stream, lines) = stream(line_bytes);
    bencher
        .counter(ItemsCount::new(lines))
        .counter(BytesCount::of_str(&stream))
        .bench(|| run(black_box(stream.as_bytes())));
}

fn memchr_lines(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', stream).map(move |newline| &stream[std::mem::replace(&mut start, newline + 1)..newline])
}

/// The whole way in: reads of one chunk each, cut into lines, parsed.
#[divan::bench(args = LINE_BYTES)]
fn line_buffer_and_parse(bencher: Bencher, line_bytes: usize) {
    counted(bencher, line_bytes, |stream| {
        let mut lines = LineBuffer::new(1 << 20);
        for read in stream.chunks(READ_CHUNK_BYTES) {
            lines.spare().put_slice(read);
            while let Some(line) = lines.next_line().expect("no line is too long") {
                black_box(WorkerFrame::parse(line).expect("every line is a frame"));
            }
        }
    });
}

#[divan::bench(args = LINE_BYTES)]
fn line_buffer_only(bencher: Bencher, line_bytes: usize) {
    counted(bencher, line_bytes, |stream| {
        let mut lines = LineBuffer::new(1 << 20);
        for read in stream.chunks(READ_CHUNK_BYTES) {
            lines.spare().put_slice(read);
            while let Some(line) = lines.next_line().expect("no line is too long") {
                black_box(line);
            }
        }
    });
}

/// Baseline: what a parser that builds a tree costs, on lines already cut.
#[divan::bench(args = LINE_BYTES)]
fn baseline_serde_json_value(bencher: Bencher, line_bytes: usize) {
    counted(bencher, line_bytes, |stream| {
        for line in memchr_lines(stream) {
            black_box(serde_json::from_slice::<Value>(line).expect("every line is JSON"));
        }
    });
}

/// Baseline: the same envelope as plain `serde_json` reads it, with its content left as text, on lines already cut.
#[divan::bench(args = LINE_BYTES)]
fn baseline_serde_json_envelope(bencher: Bencher, line_bytes: usize) {
    counted(bencher, line_bytes, |stream| {
        for line in memchr_lines(stream) {
            black_box(serde_json::from_slice::<Envelope<'_>>(line).expect("every line is a message"));
        }
    });
}

/// Baseline: the least that any reader of lines must do.
#[divan::bench(args = LINE_BYTES)]
fn baseline_memchr_lines(bencher: Bencher, line_bytes: usize) {
    counted(bencher, line_bytes, |stream| {
        for line in memchr_lines(stream) {
            black_box(line);
        }
    });
}

/// The way out: a query whose payload has the given size.
#[divan::bench(args = LINE_BYTES)]
fn encode_query(bencher: Bencher, payload_bytes: usize) {
    let payload = message(payload_bytes);
    let frame = PoolFrame::Query {
        request_id: "01J9ZK3V5W8Q2N4R6T8Y0A2C4E",
        payload: &payload,
        attempt: Some(1),
        query_type: Some("chat"),
        key: None,
        session_id: None,
        timeout_ms: Some(30_000),
        traceparent: None,
    };
    let mut out = BytesMut::new();
    bencher.counter(ItemsCount::new(1_usize)).counter(BytesCount::of_str(&payload)).bench_local(|| {
        out.clear();
        black_box(&frame).encode(&mut out);
        black_box(&out);
    });
}
