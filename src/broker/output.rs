//! Output of a worker, as it is given to the log of its query.

use crate::protocol::JsonText;

use super::MessageBatch;

/// Output of a worker for its query.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Session(Box<str>),
    Message(JsonText),
    /// Several that arrived together.
    Messages(MessageBatch),
}

impl Output {
    /// Bytes that it counts for against the log's limit.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Session(session_id) => session_id.len(),
            Self::Message(content) => content.len(),
            Self::Messages(batch) => batch.size(0..batch.len()),
        }
    }

    /// Number of events that it makes.
    #[must_use]
    pub fn event_count(&self) -> usize {
        match self {
            Self::Session(_) | Self::Message(_) => 1,
            Self::Messages(batch) => batch.len(),
        }
    }

    /// One output for each of its events.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        match self {
            Self::Messages(batch) => (0..batch.len()).map(|index| Self::Message(batch.json_text(index))).collect(),
            one => vec![one],
        }
    }
}
