//! The frames that a worker sends, borrowed from their line.

use std::borrow::Cow;

use super::envelope::Envelope;
use super::error::ProtocolError;
use super::field::TextOrNumber;
use super::names::{Field, FrameType};
use super::scan::scan;

/// One frame from a worker. Raw fields are valid JSON text, exactly as the worker wrote it; keep
/// one with [`JsonText::from_checked`](super::JsonText::from_checked).
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerFrame<'a> {
    /// The first frame: the worker can take a query.
    Ready {
        protocol: Option<u32>,
        name: Option<Cow<'a, str>>,
        version: Option<Cow<'a, str>>,
        capabilities: Vec<Cow<'a, str>>,
        /// `true` promises heartbeats, so that their absence means something. By default a worker sends none.
        heartbeat: Option<bool>,
    },
    /// The query has begun, in a session that a later query can name.
    Session { request_id: Cow<'a, str>, session_id: Cow<'a, str> },
    /// One part of the result; `content` is raw JSON text.
    Message { request_id: Cow<'a, str>, content: &'a str },
    /// The query succeeded; `result` is raw JSON text, `null` if the worker gave none.
    Complete { request_id: Cow<'a, str>, result: &'a str },
    /// The query failed, the worker did not.
    Error {
        request_id: Cow<'a, str>,
        error: Cow<'a, str>,
        code: Option<Cow<'a, str>>,
        retryable: Option<bool>,
        /// Raw JSON text.
        details: Option<&'a str>,
    },
    /// Sign of life; `memory` is in bytes.
    Heartbeat { state: Option<Cow<'a, str>>, memory: Option<u64>, cpu: Option<f64>, tasks: Option<u64> },
    /// The answer to a health check; `uptime` is in seconds.
    HealthOk { uptime: f64, queries_processed: u64 },
    /// The worker received the shutdown and is about to exit.
    ShutdownAck,
}

impl<'a> WorkerFrame<'a> {
    /// Reads one line, without its newline.
    ///
    /// # Errors
    ///
    /// Any line that is not exactly one well-formed frame.
    pub fn parse(line: &'a [u8]) -> Result<Self, ProtocolError> {
        scan(line).map_or_else(|| Self::parse_fully(line), Ok)
    }

    /// Reads a line of any form.
    pub(super) fn parse_fully(line: &'a [u8]) -> Result<Self, ProtocolError> {
        let envelope = Envelope::read(line)?;
        match envelope.frame_type {
            FrameType::Ready => ready(&envelope),
            FrameType::Session => Ok(Self::Session {
                request_id: envelope.required(Field::RequestId)?,
                session_id: envelope.required(Field::SessionId)?,
            }),
            FrameType::Message => Ok(Self::Message {
                request_id: envelope.required(Field::RequestId)?,
                content: envelope.required(Field::Content)?,
            }),
            FrameType::Complete => Ok(Self::Complete {
                request_id: envelope.required(Field::RequestId)?,
                result: envelope.optional(Field::Result)?.unwrap_or("null"),
            }),
            FrameType::Error => error(&envelope),
            FrameType::Heartbeat => heartbeat(&envelope),
            FrameType::HealthOk => Ok(Self::HealthOk {
                uptime: envelope.required(Field::Uptime)?,
                queries_processed: envelope.required(Field::QueriesProcessed)?,
            }),
            FrameType::ShutdownAck => Ok(Self::ShutdownAck),
        }
    }

    #[must_use]
    pub fn frame_type(&self) -> FrameType {
        match self {
            Self::Ready { .. } => FrameType::Ready,
            Self::Session { .. } => FrameType::Session,
            Self::Message { .. } => FrameType::Message,
            Self::Complete { .. } => FrameType::Complete,
            Self::Error { .. } => FrameType::Error,
            Self::Heartbeat { .. } => FrameType::Heartbeat,
            Self::HealthOk { .. } => FrameType::HealthOk,
            Self::ShutdownAck => FrameType::ShutdownAck,
        }
    }

    /// Name of the frame's type on the wire.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.frame_type().name()
    }

    /// Id of the attempt that the frame belongs to, if its type has one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Session { request_id, .. }
            | Self::Message { request_id, .. }
            | Self::Complete { request_id, .. }
            | Self::Error { request_id, .. } => Some(request_id),
            Self::Ready { .. } | Self::Heartbeat { .. } | Self::HealthOk { .. } | Self::ShutdownAck => None,
        }
    }
}

fn ready<'a>(envelope: &Envelope<'a>) -> Result<WorkerFrame<'a>, ProtocolError> {
    Ok(WorkerFrame::Ready {
        protocol: envelope.optional(Field::Protocol)?,
        name: envelope.optional(Field::Name)?,
        version: text_or_number(envelope, Field::Version)?,
        capabilities: envelope.optional(Field::Capabilities)?.unwrap_or_default(),
        heartbeat: envelope.optional(Field::Heartbeat)?,
    })
}

fn error<'a>(envelope: &Envelope<'a>) -> Result<WorkerFrame<'a>, ProtocolError> {
    Ok(WorkerFrame::Error {
        request_id: envelope.required(Field::RequestId)?,
        error: envelope.required(Field::Error)?,
        code: text_or_number(envelope, Field::Code)?,
        retryable: envelope.optional(Field::Retryable)?,
        details: envelope.optional(Field::Details)?,
    })
}

fn heartbeat<'a>(envelope: &Envelope<'a>) -> Result<WorkerFrame<'a>, ProtocolError> {
    Ok(WorkerFrame::Heartbeat {
        state: envelope.optional(Field::State)?,
        memory: envelope.optional(Field::Memory)?,
        cpu: envelope.optional(Field::Cpu)?,
        tasks: envelope.optional(Field::Tasks)?,
    })
}

fn text_or_number<'a>(envelope: &Envelope<'a>, field: Field) -> Result<Option<Cow<'a, str>>, ProtocolError> {
    Ok(envelope.optional(field)?.map(|TextOrNumber(text)| text))
}
