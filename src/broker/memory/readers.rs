//! Who reads a query's log, and how far each has come.

use std::{
    task::Waker,
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
pub(super) struct Readers {
    cursors: Vec<Cursor>,
    next_reader: u64,
    /// Since when nobody reads, if someone did.
    unread_since: Option<Instant>,
}

#[derive(Debug)]
struct Cursor {
    reader: u64,
    /// The next sequence number that it wants.
    next: u64,
    /// While it waits for that.
    waker: Option<Waker>,
}

/// Readers to be woken. Mostly there is one.
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
        self.cursors.push(Cursor { reader, next: from, waker: None });
        self.unread_since = None;
        reader
    }

    pub(super) fn detach(&mut self, reader: u64, now: Instant) {
        self.cursors.retain(|cursor| cursor.reader != reader);
        if self.cursors.is_empty() {
            // An ended query is kept for long, and mostly nobody reads it again.
            self.cursors = Vec::new();
            self.unread_since = Some(now);
        }
    }

    pub(super) fn moved(&mut self, reader: u64, next: u64) {
        if let Some(cursor) = self.find(reader) {
            cursor.next = next;
        }
    }

    /// The reader has read all there is. It is woken once when there is more.
    pub(super) fn waits(&mut self, reader: u64, waker: &Waker) {
        if let Some(cursor) = self.find(reader) {
            cursor.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
        }
    }

    /// Those who wait, who do so no more.
    pub(super) fn call(&mut self) -> Wakers {
        let mut waiting = self.cursors.iter_mut().filter_map(|cursor| cursor.waker.take());
        Wakers { first: waiting.next(), others: waiting.collect() }
    }

    fn find(&mut self, reader: u64) -> Option<&mut Cursor> {
        self.cursors.iter_mut().find(|cursor| cursor.reader == reader)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    /// Whether someone has not read the event `sequence` yet.
    pub(super) fn wants(&self, sequence: u64) -> bool {
        self.cursors.iter().any(|cursor| cursor.next <= sequence)
    }

    /// Whether nobody has been reading for this long, after someone did.
    pub(super) fn gone_for(&self, patience: Duration, now: Instant) -> bool {
        self.unread_since.is_some_and(|since| now.duration_since(since) >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_who_lags_and_since_when_nobody_reads() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut readers = Readers::default();
        assert!(!readers.wants(0) && !readers.gone_for(Duration::ZERO, now), "nobody has ever read");
        let (fast, slow) = (readers.attach(0), readers.attach(3));
        readers.moved(fast, 10);
        assert!(readers.wants(3) && readers.wants(9) && !readers.wants(2));
        readers.detach(slow, now);
        assert!(!readers.wants(9) && readers.wants(10) && !readers.is_empty());
        readers.detach(fast, now);
        assert!(readers.gone_for(second, now + second) && !readers.gone_for(second, now));
        readers.attach(0);
        assert!(!readers.gone_for(Duration::ZERO, now + second));
    }
}
