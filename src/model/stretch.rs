//! The entries of a log as they are kept and read: one by one, or messages that came together.

use std::{ops::Range, time::SystemTime};

use crate::protocol::JsonTexts;

use super::{Event, EventBody};

/// Messages that came together, each of them an event.
#[derive(Debug, Clone)]
pub struct Messages {
    /// The sequence number of the first; the others follow.
    pub first: u64,
    pub attempt: u32,
    pub at: SystemTime,
    pub texts: JsonTexts,
}

/// Events that follow one another.
#[derive(Debug, Clone)]
pub enum Stretch<'a> {
    One(&'a Event),
    /// Some of the messages.
    Messages(&'a Messages, Range<usize>),
}

impl Messages {
    /// One of them by itself.
    #[must_use]
    pub fn event(&self, index: usize) -> Event {
        let body = EventBody::Message { content: self.texts.text(index) };
        Event { sequence: self.first + index as u64, attempt: self.attempt, at: self.at, body }
    }
}

impl Stretch<'_> {
    /// Adds each event by itself.
    pub fn append_to(&self, events: &mut Vec<Event>) {
        match self {
            Self::One(event) => events.push((*event).clone()),
            Self::Messages(messages, range) => events.extend(range.clone().map(|index| messages.event(index))),
        }
    }
}
