//! The event log of one query: append-only, numbered, bounded by dropping its oldest entries.

use std::{collections::VecDeque, sync::Arc, time::SystemTime};

use crate::{
    broker::{EventSlice, MessageBatch},
    model::{Event, EventBody},
};

/// A read stops after this many bytes, so that a slow reader does not hold on to a whole log.
const READ_BYTES: usize = 32 * 1024;

/// Limits of one query's log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogLimits {
    pub events: usize,
    pub bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct EventLog {
    slices: VecDeque<EventSlice>,
    /// Sequence number of the first kept event.
    first: u64,
    /// Sequence number of the next event.
    next: u64,
    bytes: usize,
}

impl EventLog {
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Weight of the kept events.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn count(&self) -> usize {
        usize::try_from(self.next - self.first).unwrap_or(usize::MAX)
    }

    /// Adds an event and returns the number of old ones that were dropped for it.
    pub(super) fn push(&mut self, attempt: u32, at: SystemTime, body: EventBody, limits: LogLimits) -> usize {
        self.bytes += body.weight();
        self.slices.push_back(EventSlice::One(Arc::new(Event { sequence: self.next, attempt, at, body })));
        self.next += 1;
        self.trim(limits)
    }

    /// The same with messages that arrived together.
    pub(super) fn push_messages(
        &mut self,
        attempt: u32,
        at: SystemTime,
        mut batch: MessageBatch,
        limits: LogLimits,
    ) -> usize {
        (batch.first, batch.attempt, batch.at) = (self.next, attempt, at);
        let count = batch.len();
        self.bytes += batch.size(0..count);
        self.next = batch.sequence(count);
        self.slices.push_back(EventSlice::Messages(Arc::new(batch), 0..count));
        self.trim(limits)
    }

    /// Adds the final event without dropping another one: the log exceeds its limits by this one event.
    pub(super) fn push_last(&mut self, attempt: u32, at: SystemTime, body: EventBody) {
        self.push(attempt, at, body, LogLimits { events: usize::MAX, bytes: usize::MAX });
    }

    /// The first sequence number that would still be kept if that many events with this total weight were added. `None` if some
    /// of the added ones would be dropped themselves; a single one never is.
    pub(super) fn first_after(&self, events: usize, weight: usize, limits: LogLimits) -> Option<u64> {
        let fits = |count, bytes| count <= limits.events && bytes <= limits.bytes;
        let (mut count, mut bytes, mut first) = (self.count() + events, self.bytes + weight, self.first);
        for slices in &self.slices {
            for index in 0..slices.len() {
                if fits(count, bytes) {
                    return Some(first);
                }
                count -= 1;
                bytes -= slices.weight(index);
                first += 1;
            }
        }
        (events == 1 || fits(count, bytes)).then_some(first)
    }

    /// Drops the oldest events beyond the limits. The newest one stays, whatever its size.
    fn trim(&mut self, limits: LogLimits) -> usize {
        let before = self.first;
        while self.count() > 1 && (self.count() > limits.events || self.bytes > limits.bytes) {
            let Some(oldest) = self.slices.front_mut() else { break };
            self.bytes -= oldest.weight(0);
            self.first += 1;
            match oldest {
                EventSlice::Messages(_, range) if range.len() > 1 => range.start += 1,
                _ => drop(self.slices.pop_front()),
            }
        }
        usize::try_from(self.first - before).unwrap_or(usize::MAX)
    }

    /// The kept events from `from` on, at most `max` of them, headed by a gap where some were dropped. Empty if there are none.
    pub(super) fn read(&self, from: u64, max: usize) -> Vec<EventSlice> {
        let mut batch = Vec::new();
        if from < self.first
            && let Some(oldest) = self.slices.front()
        {
            let (attempt, at) = oldest.origin();
            let body = EventBody::Gap { first: from, last: self.first - 1 };
            batch.push(EventSlice::One(Arc::new(Event { sequence: self.first - 1, attempt, at, body })));
        }
        let mut next = from.max(self.first);
        let (mut count, mut bytes) = (0, 0);
        for slices in self.slices.range(self.slices.partition_point(|slices| slices.end() <= next)..) {
            let begin = slices.len().saturating_sub(usize::try_from(slices.end() - next).unwrap_or(usize::MAX));
            let mut end = begin;
            while end < slices.len() && count < max && bytes < READ_BYTES {
                bytes += slices.weight(end);
                count += 1;
                end += 1;
            }
            if begin == end {
                break;
            }
            batch.push(slices.slice(begin..end));
            next += (end - begin) as u64;
        }
        batch
    }

    /// The last event, if it is not part of a batch; the final event never is.
    pub(super) fn last(&self) -> Option<&Arc<Event>> {
        match self.slices.back()? {
            EventSlice::One(event) => Some(event),
            EventSlice::Messages(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        broker::{MessageBatchBuilder, Output},
        protocol::JsonText,
    };
    use proptest::prelude::*;

    /// A message of so many bytes.
    fn of_length(length: usize) -> String {
        "7".repeat(length)
    }

    fn push_lengths(log: &mut EventLog, lengths: &[usize], limits: LogLimits) -> usize {
        let mut builder = MessageBatchBuilder::default();
        for length in lengths {
            builder.push_checked(&of_length(*length), 0);
        }
        match builder.take() {
            Some(Output::Messages(batch)) => log.push_messages(1, SystemTime::UNIX_EPOCH, batch, limits),
            Some(Output::Message(content)) => {
                log.push(1, SystemTime::UNIX_EPOCH, EventBody::Message { content }, limits)
            }
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn batched_messages_are_kept_like_single_ones(
            batches in prop::collection::vec(prop::collection::vec(prop_oneof![1..9_usize, 1..20_000_usize], 0..9), 0..9),
            limits in (1..30_usize, 1..60_000_usize).prop_map(|(events, bytes)| LogLimits { events, bytes }),
            (from, max, weight) in (0..70_u64, 1..40_usize, 0..30_000_usize),
        ) {
            let (mut together, mut apart, mut dropped) = (EventLog::default(), EventLog::default(), (0, 0));
            for lengths in batches {
                dropped.0 += push_lengths(&mut together, &lengths, limits);
                dropped.1 += lengths.iter().map(|length| push_lengths(&mut apart, &[*length], limits)).sum::<usize>();
            }
            prop_assert_eq!(dropped.0, dropped.1);
            prop_assert_eq!(together.bytes(), apart.bytes());
            prop_assert_eq!((together.first(), together.next()), (apart.first(), apart.next()));
            prop_assert_eq!(read(&together, from, max), read(&apart, from, max));
            for events in 1..4 {
                prop_assert_eq!(together.first_after(events, weight, limits), apart.first_after(events, weight, limits));
            }
            let first = together.first_after(2, 2 * weight.max(1), limits);
            push_lengths(&mut together, &[weight.max(1); 2], limits);
            prop_assert_eq!(first, (together.count() >= 2).then_some(together.first()));
        }
    }

    fn read(log: &EventLog, from: u64, max: usize) -> Vec<Event> {
        log.read(from, max).iter().flat_map(EventSlice::to_events).collect()
    }

    const WIDE: LogLimits = LogLimits { events: 1_000, bytes: 1_000_000 };

    fn message(n: usize) -> EventBody {
        EventBody::Message { content: JsonText::parse(n.to_string()).unwrap() }
    }

    fn log_of(n: usize, limits: LogLimits) -> EventLog {
        let mut log = EventLog::default();
        for i in 0..n {
            log.push(1, SystemTime::UNIX_EPOCH, message(i), limits);
        }
        log
    }

    fn sequences(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn events_are_numbered_from_zero_without_holes() {
        let log = log_of(5, WIDE);
        assert_eq!(sequences(&read(&log, 0, 100)), [0, 1, 2, 3, 4]);
        assert_eq!(sequences(&read(&log, 3, 100)), [3, 4]);
        assert_eq!(sequences(&read(&log, 1, 2)), [1, 2]);
        assert!(read(&log, 5, 100).is_empty());
        assert!(read(&log, u64::MAX, 100).is_empty());
    }

    #[test]
    fn dropped_events_are_reported_as_a_gap() {
        let log = log_of(10, LogLimits { events: 4, ..WIDE });
        let events = read(&log, 2, 100);
        assert_eq!(events[0].body, EventBody::Gap { first: 2, last: 5 });
        assert_eq!(sequences(&events), [5, 6, 7, 8, 9]);
        // A reader that resumes after the gap event sees the rest once, and no second gap.
        assert_eq!(sequences(&read(&log, 6, 100)), [6, 7, 8, 9]);
    }

    #[test]
    fn byte_limit_spares_the_newest_event() {
        let mut log = log_of(10, LogLimits { bytes: 3, ..WIDE });
        assert_eq!(log.first(), 7);
        let big = EventBody::Message { content: JsonText::parse("[1,2,3,4,5,6]").unwrap() };
        log.push(1, SystemTime::UNIX_EPOCH, big, LogLimits { bytes: 3, ..WIDE });
        assert_eq!((log.first(), log.next()), (10, 11));
    }
}
