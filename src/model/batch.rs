//! Events as a log keeps and hands them out: shared, one by one or as messages that arrived together.

use std::{ops::Range, sync::Arc, time::SystemTime};

use crate::protocol::JsonTexts;

use super::{Event, EventBody};

/// Messages that arrived together, each of them an event.
#[derive(Debug)]
pub struct MessageBatch {
    /// Sequence number of the first message; the others follow.
    pub first: u64,
    pub attempt: u32,
    pub at: SystemTime,
    pub texts: JsonTexts,
}

/// Consecutive events, shared with their log.
#[derive(Debug, Clone)]
pub enum EventSlice {
    One(Arc<Event>),
    /// The messages of a batch at these positions.
    Messages(Arc<MessageBatch>, Range<usize>),
}

/// The slices of one read, in the order of their events.
pub type EventBatch = Vec<EventSlice>;

impl MessageBatch {
    /// A copy of one message as an event.
    #[must_use]
    pub fn event(&self, index: usize) -> Event {
        let body = EventBody::Message { content: self.texts.text(index) };
        Event { sequence: self.sequence(index), attempt: self.attempt, at: self.at, body }
    }

    #[must_use]
    pub fn sequence(&self, index: usize) -> u64 {
        self.first + index as u64
    }
}

impl EventSlice {
    /// Sequence number of the last event.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        match self {
            Self::One(event) => event.sequence,
            Self::Messages(batch, range) => batch.sequence(range.end - 1),
        }
    }

    /// A copy of each event.
    #[must_use]
    pub fn to_events(&self) -> Vec<Event> {
        match self {
            Self::One(event) => vec![Event::clone(event)],
            Self::Messages(batch, range) => range.clone().map(|index| batch.event(index)).collect(),
        }
    }
}
