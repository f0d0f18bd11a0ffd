//! The readers of a query's log, each with its position.

use std::{
    task::Waker,
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
pub(super) struct Readers {
    cursors: Vec<ReaderCursor>,
    next_reader: u64,
    /// Time at which the last reader left.
    unread_since: Option<Instant>,
}

#[derive(Debug)]
struct ReaderCursor {
    reader: u64,
    /// Sequence number of the next event to read.
    next: u64,
    /// Set while the reader waits for that event.
    waker: Option<Waker>,
}

/// Readers to be woken. The first one, mostly the only one, takes no allocation.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl Wakers {
    pub(super) fn wake(self) {
        self.first.into_iter().chain(self.others).for_each(Waker::wake);
    }
}

impl Readers {
    pub(super) fn attach(&mut self, from: u64) -> u64 {
        let reader = self.next_reader;
        self.next_reader += 1;
        self.cursors.push(ReaderCursor { reader, next: from, waker: None });
        self.unread_since = None;
        reader
    }

    pub(super) fn detach(&mut self, reader: u64, now: Instant) {
        self.cursors.retain(|cursor| cursor.reader != reader);
        if self.cursors.is_empty() {
            // An ended query is kept for long, and is rarely read again: free the allocation.
            self.cursors = Vec::new();
            self.unread_since = Some(now);
        }
    }

    pub(super) fn advance(&mut self, reader: u64, next: u64) {
        if let Some(cursor) = self.find(reader) {
            cursor.next = next;
        }
    }

    /// Registers a reader that has read all events, to be woken once when there are more.
    pub(super) fn set_waker(&mut self, reader: u64, waker: &Waker) {
        if let Some(cursor) = self.find(reader) {
            cursor.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
        }
    }

    /// Takes the wakers of the readers that wait.
    pub(super) fn take_wakers(&mut self) -> Wakers {
        let mut waiting = self.cursors.iter_mut().filter_map(|cursor| cursor.waker.take());
        Wakers { first: waiting.next(), others: waiting.collect() }
    }

    fn find(&mut self, reader: u64) -> Option<&mut ReaderCursor> {
        self.cursors.iter_mut().find(|cursor| cursor.reader == reader)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    /// True if a reader has not read the event `sequence` yet.
    pub(super) fn has_reader_behind(&self, sequence: u64) -> bool {
        self.cursors.iter().any(|cursor| cursor.next <= sequence)
    }

    /// True if the last reader left at least this long ago.
    pub(super) fn has_been_unread_for(&self, patience: Duration, now: Instant) -> bool {
        self.unread_since.is_some_and(|since| now.duration_since(since) >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_know_who_lags_and_since_when_nobody_reads() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut readers = Readers::default();
        assert!(
            !readers.has_reader_behind(0) && !readers.has_been_unread_for(Duration::ZERO, now),
            "nobody has ever read"
        );
        let (fast, slow) = (readers.attach(0), readers.attach(3));
        readers.advance(fast, 10);
        assert!(readers.has_reader_behind(3) && readers.has_reader_behind(9) && !readers.has_reader_behind(2));
        readers.detach(slow, now);
        assert!(!readers.has_reader_behind(9) && readers.has_reader_behind(10) && !readers.is_empty());
        readers.detach(fast, now);
        assert!(readers.has_been_unread_for(second, now + second) && !readers.has_been_unread_for(second, now));
        readers.attach(0);
        assert!(!readers.has_been_unread_for(Duration::ZERO, now + second));
    }
}
