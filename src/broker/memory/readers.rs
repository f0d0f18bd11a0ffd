//! Who reads a query's log, and how far each has come.

use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Each reader's number and the next sequence number that it wants.
    cursors: Vec<(u64, u64)>,
    next_reader: u64,
    /// Since when nobody reads, if someone did.
    unread_since: Option<Instant>,
}

impl Readers {
    pub(super) fn attach(&mut self, from: u64) -> u64 {
        let reader = self.next_reader;
        self.next_reader += 1;
        self.cursors.push((reader, from));
        self.unread_since = None;
        reader
    }

    pub(super) fn detach(&mut self, reader: u64, now: Instant) {
        self.cursors.retain(|(other, _)| *other != reader);
        if self.cursors.is_empty() {
            self.unread_since = Some(now);
        }
    }

    pub(super) fn moved(&mut self, reader: u64, next: u64) {
        if let Some((_, cursor)) = self.cursors.iter_mut().find(|(other, _)| *other == reader) {
            *cursor = next;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    /// Whether someone has not read the event `sequence` yet.
    pub(super) fn wants(&self, sequence: u64) -> bool {
        self.cursors.iter().any(|(_, next)| *next <= sequence)
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
