//! The worker protocol, version 1: bytes to messages and back, with no I/O and no clock.
//!
//! One JSON object a line, UTF-8, camelCase names. Fields marked ? may be absent, or `null` when a
//! worker sends them.
//!
//! ```text
//! pool → worker   query        requestId, payload, attempt?, queryType?, key?,
//!                              sessionId?, timeoutMs?, traceparent?
//!                 cancel       requestId, reason?
//!                 shutdown     graceful, graceMs?
//!                 health_check
//! worker → pool   ready        protocol?, name?, version?, capabilities?[], heartbeat?
//!                 session      requestId, sessionId
//!                 message      requestId, content
//!                 complete     requestId, result?
//!                 error        requestId, error, code?, retryable?, details?
//!                 heartbeat    state?, memory?, cpu?, tasks?
//!                 health_ok    uptime, queriesProcessed
//!                 shutdown_ack
//! ```
//!
//! A [`LineBuffer`] cuts the bytes of a worker into lines, [`WorkerFrame::parse`] reads one line,
//! and [`PoolFrame::encode`] writes one. The envelope is parsed; `payload`, `content`, `result` and
//! `details` are checked to be JSON and pass through as the text they came as. Unknown fields are
//! ignored, so that either side may add some.
//!
//! A breach of these rules is a [`ProtocolError`]. The driver of a worker checks the rules about the *order* of frames.

mod envelope;
mod error;
mod field;
mod json;
mod lines;
mod names;
mod pool_frame;
mod scan;
mod worker_frame;

#[cfg(test)]
mod tests;

pub use error::ProtocolError;
pub use json::{JsonError, JsonText};
pub use lines::{LineBuffer, READ_CHUNK_BYTES};
pub use names::FrameType;
pub use pool_frame::PoolFrame;
pub use worker_frame::WorkerFrame;

/// Version of the worker protocol that the pool speaks. A worker that names none speaks this one.
pub const PROTOCOL_VERSION: u32 = 1;
