//! What a worker says about its query, as it is given to the log.

use crate::protocol::JsonText;

use super::MessageBatch;

/// What a worker produced for its query.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Session(Box<str>),
    Message(JsonText),
    /// Several that arrived together.
    Messages(MessageBatch),
}

impl Output {
    /// What it counts for against the log's byte limit.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Session(session_id) => session_id.len(),
            Self::Message(content) => content.len(),
            Self::Messages(batch) => batch.size(0..batch.len()),
        }
    }

    /// How many events it makes.
    #[must_use]
    pub fn events(&self) -> usize {
        match self {
            Self::Session(_) | Self::Message(_) => 1,
            Self::Messages(batch) => batch.len(),
        }
    }

    /// Each of its events by itself.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        match self {
            Self::Messages(batch) => (0..batch.len()).map(|index| Self::Message(batch.json_text(index))).collect(),
            one => vec![one],
        }
    }
}
