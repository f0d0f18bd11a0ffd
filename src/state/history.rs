//! The last moves of one machine, bounded, so that a worker that lives for months costs no more memory.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Instant;

/// Long enough to hold a whole troubled life (start, some queries, stop); about 1.5 KiB when full.
pub const DEFAULT_HISTORY_LIMIT: NonZeroUsize = NonZeroUsize::new(32).expect("32 is not zero");

/// One move that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition<S> {
    pub from: S,
    pub to: S,
    /// When the caller decided on the move. Callers that race may record these slightly out of order.
    pub at: Instant,
    /// For a person who asks later. Borrowed on the common paths, so recording does not allocate.
    pub reason: Cow<'static, str>,
}

/// A ring of the newest transitions. Who wants none at all uses a bare `StateCell`.
#[derive(Clone, Debug)]
pub struct History<S> {
    limit: NonZeroUsize,
    kept: VecDeque<Transition<S>>,
    dropped: u64,
}

impl<S> History<S> {
    /// Allocates nothing until the first transition.
    #[must_use]
    pub const fn new(limit: NonZeroUsize) -> Self {
        Self { limit, kept: VecDeque::new(), dropped: 0 }
    }

    /// Adds the newest transition, at the cost of the oldest one when full.
    pub fn push(&mut self, transition: Transition<S>) {
        // Making room first keeps the buffer from growing past the limit.
        if self.kept.len() == self.limit.get() {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(transition);
    }

    /// From oldest to newest.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Transition<S>> {
        self.kept.iter()
    }

    /// How many transitions came before the oldest one kept.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<S> Default for History<S> {
    fn default() -> Self {
        Self::new(DEFAULT_HISTORY_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers stand in for states: a history does not care what it keeps.
    fn push_up_to(history: &mut History<usize>, count: usize) {
        let at = Instant::now();
        for from in 0..count {
            let reason = Cow::Borrowed("step");
            history.push(Transition { from, to: from + 1, at, reason });
        }
    }

    fn origins(history: &History<usize>) -> Vec<usize> {
        history.iter().map(|transition| transition.from).collect()
    }

    #[test]
    fn an_empty_history_allocates_nothing() {
        let history = History::<usize>::default();
        assert_eq!(history.kept.capacity(), 0);
        assert_eq!(history.iter().len(), 0);
    }

    #[test]
    fn a_history_up_to_its_limit_keeps_everything() {
        let mut history = History::default();
        push_up_to(&mut history, 32);
        assert_eq!(origins(&history), (0..32).collect::<Vec<_>>());
        assert_eq!(history.dropped(), 0);
    }

    #[test]
    fn a_full_history_drops_the_oldest_and_counts_it() {
        let mut history = History::new(NonZeroUsize::new(3).unwrap());
        push_up_to(&mut history, 5);
        assert_eq!(origins(&history), [2, 3, 4]);
        assert_eq!(history.dropped(), 2);
    }

    #[test]
    fn a_history_of_one_keeps_the_newest() {
        let mut history = History::new(NonZeroUsize::MIN);
        push_up_to(&mut history, 4);
        assert_eq!(origins(&history), [3]);
        assert_eq!(history.dropped(), 3);
    }

    #[test]
    fn a_full_history_stops_growing() {
        let mut history = History::default();
        push_up_to(&mut history, 32);
        let full = history.kept.capacity();
        push_up_to(&mut history, 10_000);
        assert_eq!(history.kept.capacity(), full);
    }
}
