//! The waiting queries of each priority by arrival: finds the oldest one, and the newest one.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::super::entry::Entry;

/// Queries looked at in one search, capped to bound how long the lock is held.
const SCAN_LIMIT: usize = 2_000;

/// Queries that stopped waiting stay until a search meets them or they outnumber the others.
#[derive(Debug, Default)]
pub(super) struct AgeIndex {
    by_priority: BTreeMap<u32, VecDeque<Arc<Entry>>>,
    len: usize,
}

impl AgeIndex {
    /// Adds a query that has just arrived.
    pub(super) fn push(&mut self, entry: Arc<Entry>) {
        let line = self.by_priority.entry(entry.meta.spec.priority).or_default();
        self.len += 1;
        self.len -= drop_first(line);
        // A later query may have won the race for the lock.
        if line.back().is_none_or(|last| last.meta.number < entry.meta.number) {
            line.push_back(entry);
        } else {
            self.len -= 1;
            self.reinsert(entry);
        }
    }

    /// Adds a query that waits again at its old place, unless its old entry is still there.
    pub(super) fn reinsert(&mut self, entry: Arc<Entry>) {
        let line = self.by_priority.entry(entry.meta.spec.priority).or_default();
        let at = line.partition_point(|other| other.meta.number < entry.meta.number);
        if line.get(at).is_none_or(|other| other.meta.number != entry.meta.number) {
            line.insert(at, entry);
            self.len += 1;
        }
    }

    /// Drops stale entries at the front after a query of this priority has left.
    pub(super) fn on_query_left(&mut self, priority: u32) {
        if let Some(line) = self.by_priority.get_mut(&priority) {
            self.len -= drop_first(line);
            if line.is_empty() {
                self.by_priority.remove(&priority);
            }
        }
    }

    /// The oldest wanted query among the first [`SCAN_LIMIT`].
    pub(super) fn oldest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<&Arc<Entry>> {
        let (mut budget, mut oldest) = (SCAN_LIMIT, None::<&Arc<Entry>>);
        for line in self.by_priority.values() {
            let mut seen = 0;
            let found = line.iter().take(budget).inspect(|_| seen += 1).find(|entry| wanted(entry));
            budget -= seen;
            let older = |entry: &&Arc<Entry>| oldest.is_none_or(|other| entry.meta.number < other.meta.number);
            oldest = found.filter(older).or(oldest);
        }
        oldest
    }

    /// The newest query of the worst priority that no worker has had yet, among the last [`SCAN_LIMIT`].
    pub(super) fn shed_candidate(&mut self) -> Option<Arc<Entry>> {
        loop {
            let mut worst = self.by_priority.last_entry()?;
            let line = worst.get_mut();
            self.len -= drop_last(line);
            if !line.is_empty() {
                break;
            }
            worst.remove();
        }
        let lines = self.by_priority.values().rev();
        let mut newest = lines.flat_map(|line| line.iter().rev()).take(SCAN_LIMIT);
        newest.find(|entry| waits(entry) && entry.is_unattempted()).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn compact(&mut self) {
        self.by_priority.retain(|_, line| {
            line.retain(waits);
            line.shrink_to(2 * line.len());
            !line.is_empty()
        });
        self.len = self.by_priority.values().map(VecDeque::len).sum();
    }

    /// Takes out all waiting queries.
    pub(super) fn drain(&mut self) -> Vec<Arc<Entry>> {
        self.len = 0;
        std::mem::take(&mut self.by_priority).into_values().flatten().filter(waits).collect()
    }
}

fn waits(entry: &Arc<Entry>) -> bool {
    !entry.position.is_none()
}

fn drop_first(line: &mut VecDeque<Arc<Entry>>) -> usize {
    let before = line.len();
    while line.front().is_some_and(|entry| !waits(entry)) {
        line.pop_front();
    }
    before - line.len()
}

fn drop_last(line: &mut VecDeque<Arc<Entry>>) -> usize {
    let before = line.len();
    while line.back().is_some_and(|entry| !waits(entry)) {
        line.pop_back();
    }
    before - line.len()
}
