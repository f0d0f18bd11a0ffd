//! All queries that are kept, by order of arrival, in less memory than a tree would take.

use std::{collections::VecDeque, sync::Arc};

use super::entry::Entry;

/// So many holes are let be.
const TOLERATED: usize = 16;

/// Sorted by number, since each one that is added is the newest. One that is removed leaves a hole, until holes are the
/// greater part.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    line: VecDeque<(u64, Option<Arc<Entry>>)>,
    holes: usize,
}

impl Arrivals {
    pub(super) fn push(&mut self, entry: Arc<Entry>) {
        debug_assert!(self.line.back().is_none_or(|(last, _)| *last < entry.fixed.number), "numbers only grow");
        self.line.push_back((entry.fixed.number, Some(entry)));
    }

    pub(super) fn remove(&mut self, number: u64) {
        let Some(at) = self.find(number) else { return };
        self.holes += usize::from(self.line[at].1.take().is_some());
        while self.line.front().is_some_and(|(_, entry)| entry.is_none()) {
            self.line.pop_front();
            self.holes -= 1;
        }
        if 2 * self.holes > self.line.len() + TOLERATED {
            self.line.retain(|(_, entry)| entry.is_some());
            self.line.shrink_to(2 * self.line.len());
            self.holes = 0;
        }
    }

    /// Numbers follow one another: where nothing has been cleared out between a place and one of the ends, it is known at once.
    /// To search a long line goes through memory that is in no cache.
    fn find(&self, number: u64) -> Option<usize> {
        let (first, last) = (self.line.front()?.0, self.line.back()?.0);
        let from_front = usize::try_from(number.checked_sub(first)?).ok();
        let from_back =
            usize::try_from(last.checked_sub(number)?).ok().and_then(|back| self.line.len().checked_sub(back + 1));
        let is_it = |at: &usize| self.line.get(*at).is_some_and(|(other, _)| *other == number);
        let guessed = [from_back, from_front].into_iter().flatten().find(is_it);
        guessed.or_else(|| self.line.binary_search_by_key(&number, |(other, _)| *other).ok())
    }

    /// Those with a greater number.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &Arc<Entry>> {
        let from = self.line.partition_point(|(other, _)| *other <= number);
        self.line.range(from..).filter_map(|(_, entry)| entry.as_ref())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}
