//! The frames that the pool sends to a worker, each written as one line.

use bytes::{BufMut, BytesMut};
use memchr::memchr2_iter;
use serde::Serialize;

/// Capacity for the envelope around a payload, so that one frame usually grows the buffer once.
const ENVELOPE_BYTES: usize = 256;

/// One frame to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolFrame<'a> {
    /// Run a query.
    Query {
        /// Fresh for every attempt.
        request_id: &'a str,
        /// One JSON value as text; see [`JsonText`](super::JsonText). Line breaks in it become spaces.
        payload: &'a str,
        attempt: Option<u32>,
        query_type: Option<&'a str>,
        key: Option<&'a str>,
        session_id: Option<&'a str>,
        timeout_ms: Option<u64>,
        traceparent: Option<&'a str>,
    },
    /// Stop running a query.
    Cancel { request_id: &'a str, reason: Option<&'a str> },
    /// Exit; if `graceful`, after the running query.
    Shutdown { graceful: bool, grace_ms: Option<u64> },
    /// Answer with `health_ok`.
    HealthCheck,
}

impl PoolFrame<'_> {
    /// Name of the frame's type on the wire.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Query { .. } => "query",
            Self::Cancel { .. } => "cancel",
            Self::Shutdown { .. } => "shutdown",
            Self::HealthCheck => "health_check",
        }
    }

    /// Appends the frame as exactly one line, newline included. Absent fields are not written.
    pub fn encode(&self, out: &mut BytesMut) {
        let frame = |out| FrameWriter::begin(out, self.type_name());
        match *self {
            Self::Query { request_id, payload, attempt, query_type, key, session_id, timeout_ms, traceparent } => {
                out.reserve(payload.len() + ENVELOPE_BYTES);
                frame(out)
                    .field("requestId", request_id)
                    .raw("payload", payload)
                    .optional("attempt", attempt)
                    .optional("queryType", query_type)
                    .optional("key", key)
                    .optional("sessionId", session_id)
                    .optional("timeoutMs", timeout_ms)
                    .optional("traceparent", traceparent)
                    .end();
            }
            Self::Cancel { request_id, reason } => {
                frame(out).field("requestId", request_id).optional("reason", reason).end();
            }
            Self::Shutdown { graceful, grace_ms } => {
                frame(out).field("graceful", graceful).optional("graceMs", grace_ms).end();
            }
            Self::HealthCheck => frame(out).end(),
        }
    }
}

/// Writes one line. Field names are constants and need no escaping.
struct FrameWriter<'o>(&'o mut BytesMut);

impl<'o> FrameWriter<'o> {
    fn begin(out: &'o mut BytesMut, frame_type: &str) -> Self {
        out.put_slice(b"{\"type\":");
        Self(out).value(frame_type)
    }

    fn name(self, name: &str) -> Self {
        self.0.put_slice(b",\"");
        self.0.put_slice(name.as_bytes());
        self.0.put_slice(b"\":");
        self
    }

    fn value(self, value: impl Serialize) -> Self {
        serde_json::to_writer((&mut *self.0).writer(), &value)
            .expect("strings, numbers and booleans can always be written to memory");
        self
    }

    fn field(self, name: &str, value: impl Serialize) -> Self {
        self.name(name).value(value)
    }

    fn optional(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    fn raw(self, name: &str, json: &str) -> Self {
        let writer = self.name(name);
        put_on_one_line(writer.0, json);
        writer
    }

    fn end(self) {
        self.0.put_slice(b"}\n");
    }
}

/// Appends a JSON text with its line breaks turned into spaces. JSON allows none inside a string,
/// so each of them is white space between tokens. Carriage returns go too: some languages end a
/// line at those.
fn put_on_one_line(out: &mut BytesMut, json: &str) {
    let start = out.len();
    out.put_slice(json.as_bytes());
    for position in memchr2_iter(b'\n', b'\r', json.as_bytes()) {
        out[start + position] = b' ';
    }
}
