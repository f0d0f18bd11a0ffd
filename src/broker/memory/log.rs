//! The event log of one query: append-only, numbered, bounded by dropping its oldest entries.

use std::{collections::VecDeque, time::SystemTime};

use crate::model::{Event, EventBody};

/// A read stops after this many bytes, so that a slow reader does not hold on to a whole log.
const READ_BYTES: usize = 32 * 1024;

/// How large one query's log may grow.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogLimits {
    pub events: usize,
    pub bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// Sequence number of the first kept event.
    first: u64,
    bytes: usize,
}

impl Log {
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// What is kept weighs so much.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// So many events are about to be added.
    pub(super) fn reserve(&mut self, events: usize) {
        self.events.reserve(events);
    }

    /// Adds an event and says how many old ones had to go for it.
    pub(super) fn push(&mut self, attempt: u32, at: SystemTime, body: EventBody, limits: LogLimits) -> usize {
        self.bytes += body.weight();
        let sequence = self.next();
        self.events.push_back(Event { sequence, attempt, at, body });
        self.trim(limits)
    }

    /// Adds the final event. It pushes no other out, since someone may still want that: the log goes past its limits by
    /// this one event.
    pub(super) fn push_last(&mut self, attempt: u32, at: SystemTime, body: EventBody) {
        self.push(attempt, at, body, LogLimits { events: usize::MAX, bytes: usize::MAX });
    }

    /// The first sequence number that would still be kept if an event of this weight were added.
    pub(super) fn first_after(&self, weight: usize, limits: LogLimits) -> u64 {
        let (mut count, mut bytes, mut first) = (self.events.len() + 1, self.bytes + weight, self.first);
        for event in &self.events {
            if count <= limits.events && bytes <= limits.bytes {
                break;
            }
            count -= 1;
            bytes -= event.body.weight();
            first += 1;
        }
        first
    }

    /// Drops the oldest events beyond the limits. The newest one stays, whatever its size.
    fn trim(&mut self, limits: LogLimits) -> usize {
        let before = self.first;
        while self.events.len() > 1 && (self.events.len() > limits.events || self.bytes > limits.bytes) {
            if let Some(dropped) = self.events.pop_front() {
                self.bytes -= dropped.body.weight();
                self.first += 1;
            }
        }
        usize::try_from(self.first - before).unwrap_or(usize::MAX)
    }

    /// Hands over the kept events from `from` on, at most `max` of them, headed by a gap where some were dropped. Gives the
    /// number of the last of them, if there is any.
    pub(super) fn read(&self, from: u64, max: usize, take: &mut dyn FnMut(&[Event])) -> Option<u64> {
        let mut last = None;
        if from < self.first {
            let oldest = self.events.front()?;
            let body = EventBody::Gap { first: from, last: self.first - 1 };
            take(&[Event { sequence: self.first - 1, attempt: oldest.attempt, at: oldest.at, body }]);
            last = Some(self.first - 1);
        }
        let begin = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let count = self.readable(begin, max);
        if count == 0 {
            return last;
        }
        let (front, back) = self.events.as_slices();
        let end = begin + count;
        let in_front = &front[begin.min(front.len())..end.min(front.len())];
        let in_back = &back[begin.saturating_sub(front.len())..end.saturating_sub(front.len())];
        for events in [in_front, in_back] {
            if let Some(event) = events.last() {
                last = Some(event.sequence);
                take(events);
            }
        }
        last
    }

    /// How many events from the one at `begin` on are read at once.
    fn readable(&self, begin: usize, max: usize) -> usize {
        if begin >= self.events.len() {
            return 0;
        }
        let mut bytes = 0;
        let small_enough = |event: &&Event| {
            let fits = bytes < READ_BYTES;
            bytes += event.body.weight();
            fits
        };
        self.events.range(begin..).take(max).take_while(small_enough).count()
    }

    /// The event that was added last.
    pub(super) fn last(&self) -> Option<&Event> {
        self.events.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::JsonText;

    fn read(log: &Log, from: u64, max: usize) -> Vec<Event> {
        let mut all = Vec::new();
        let last = log.read(from, max, &mut |events| all.extend_from_slice(events));
        assert_eq!(last, all.last().map(|event| event.sequence));
        all
    }

    const WIDE: LogLimits = LogLimits { events: 1_000, bytes: 1_000_000 };

    fn message(n: usize) -> EventBody {
        EventBody::Message { content: JsonText::parse(n.to_string()).unwrap() }
    }

    fn log_of(n: usize, limits: LogLimits) -> Log {
        let mut log = Log::default();
        for i in 0..n {
            log.push(1, SystemTime::UNIX_EPOCH, message(i), limits);
        }
        log
    }

    fn sequences(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn numbers_events_from_zero_without_holes() {
        let log = log_of(5, WIDE);
        assert_eq!(sequences(&read(&log, 0, 100)), [0, 1, 2, 3, 4]);
        assert_eq!(sequences(&read(&log, 3, 100)), [3, 4]);
        assert_eq!(sequences(&read(&log, 1, 2)), [1, 2]);
        assert!(read(&log, 5, 100).is_empty());
        assert!(read(&log, u64::MAX, 100).is_empty());
    }

    #[test]
    fn tells_a_reader_what_is_no_longer_kept() {
        let log = log_of(10, LogLimits { events: 4, ..WIDE });
        let events = read(&log, 2, 100);
        assert_eq!(events[0].body, EventBody::Gap { first: 2, last: 5 });
        assert_eq!(sequences(&events), [5, 6, 7, 8, 9]);
        // A reader that resumes after the gap event sees the rest once, and no second gap.
        assert_eq!(sequences(&read(&log, 6, 100)), [6, 7, 8, 9]);
    }

    #[test]
    fn bounds_bytes_but_keeps_the_newest_event() {
        let mut log = log_of(10, LogLimits { bytes: 3, ..WIDE });
        assert_eq!(log.first(), 7);
        let big = EventBody::Message { content: JsonText::parse("[1,2,3,4,5,6]").unwrap() };
        log.push(1, SystemTime::UNIX_EPOCH, big, LogLimits { bytes: 3, ..WIDE });
        assert_eq!((log.first(), log.next()), (10, 11));
    }
}
