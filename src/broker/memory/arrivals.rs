//! All kept queries by order of arrival, in less memory than a tree would take.

use std::{collections::VecDeque, sync::Arc};

use super::entry::Entry;

/// Holes that are tolerated beside half of the length.
const COMPACTION_SLACK: usize = 16;

/// Sorted by arrival number, since each added query is the newest. A removed one leaves a hole, until holes are the greater
/// part.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    line: VecDeque<(u64, Option<Arc<Entry>>)>,
    holes: usize,
}

impl Arrivals {
    pub(super) fn push(&mut self, entry: Arc<Entry>) {
        debug_assert!(self.line.back().is_none_or(|(last, _)| *last < entry.meta.number), "numbers only grow");
        self.line.push_back((entry.meta.number, Some(entry)));
    }

    pub(super) fn remove(&mut self, number: u64) {
        let Some(at) = self.find(number) else { return };
        self.holes += usize::from(self.line[at].1.take().is_some());
        while self.line.front().is_some_and(|(_, entry)| entry.is_none()) {
            self.line.pop_front();
            self.holes -= 1;
        }
        if 2 * self.holes > self.line.len() + COMPACTION_SLACK {
            self.line.retain(|(_, entry)| entry.is_some());
            self.line.shrink_to(2 * self.line.len());
            self.holes = 0;
        }
    }

    /// Finds a query by its number. Numbers are consecutive, so its distance from one of the ends mostly gives its place; the
    /// binary search is a fallback, since it touches memory that is in no cache.
    fn find(&self, number: u64) -> Option<usize> {
        let (first, last) = (self.line.front()?.0, self.line.back()?.0);
        let from_front = usize::try_from(number.checked_sub(first)?).ok();
        let from_back =
            usize::try_from(last.checked_sub(number)?).ok().and_then(|back| self.line.len().checked_sub(back + 1));
        let is_it = |at: &usize| self.line.get(*at).is_some_and(|(other, _)| *other == number);
        let guessed = [from_back, from_front].into_iter().flatten().find(is_it);
        guessed.or_else(|| self.line.binary_search_by_key(&number, |(other, _)| *other).ok())
    }

    /// The queries with a greater number.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &Arc<Entry>> {
        let from = self.line.partition_point(|(other, _)| *other <= number);
        self.line.range(from..).filter_map(|(_, entry)| entry.as_ref())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}
