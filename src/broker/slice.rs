//! Consecutive events of a log, shared between the log and its readers.

use std::{ops::Range, sync::Arc, time::SystemTime};

use crate::model::Event;

use super::MessageBatch;

#[derive(Debug, Clone)]
pub enum EventSlice {
    One(Arc<Event>),
    /// The messages of a batch at these positions.
    Messages(Arc<MessageBatch>, Range<usize>),
}

impl EventSlice {
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a slice has at least one event")]
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Messages(_, range) => range.len(),
        }
    }

    /// Sequence number after the last event.
    #[must_use]
    pub fn end(&self) -> u64 {
        match self {
            Self::One(event) => event.sequence + 1,
            Self::Messages(batch, range) => batch.sequence(range.end),
        }
    }

    /// Attempt and time of the events.
    pub(super) fn origin(&self) -> (u32, SystemTime) {
        match self {
            Self::One(event) => (event.attempt, event.at),
            Self::Messages(batch, _) => (batch.attempt, batch.at),
        }
    }

    /// Bytes that the event at `index` counts for against the log's limit.
    pub(super) fn weight(&self, index: usize) -> usize {
        match self {
            Self::One(event) => event.body.weight(),
            Self::Messages(batch, range) => {
                let position = range.start + index;
                batch.size(position..position + 1)
            }
        }
    }

    /// The events at these positions, of which there is at least one.
    pub(super) fn slice(&self, part: Range<usize>) -> Self {
        match self {
            Self::One(event) => Self::One(event.clone()),
            Self::Messages(batch, range) => {
                Self::Messages(batch.clone(), range.start + part.start..range.start + part.end)
            }
        }
    }

    /// A copy of each event.
    #[cfg(test)]
    pub(crate) fn to_events(&self) -> Vec<Event> {
        let message = |batch: &MessageBatch, index| Event {
            sequence: batch.sequence(index),
            attempt: batch.attempt,
            at: batch.at,
            body: crate::model::EventBody::Message { content: batch.json_text(index) },
        };
        match self {
            Self::One(event) => vec![Event::clone(event)],
            Self::Messages(batch, range) => range.clone().map(|index| message(batch, index)).collect(),
        }
    }
}
