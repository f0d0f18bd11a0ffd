//! The waiting queries of each priority by arrival: who has waited longest, and who came last.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::super::entry::Entry;

/// At most so many are looked at to find the one that is wanted.
const SCAN_LIMIT: usize = 2_000;

/// Queries that stopped waiting stay until they are met or outnumber the others.
#[derive(Debug, Default)]
pub(super) struct Ages {
    by_priority: BTreeMap<u32, VecDeque<Arc<Entry>>>,
    len: usize,
}

impl Ages {
    /// The query that arrived last.
    pub(super) fn push(&mut self, entry: Arc<Entry>) {
        let line = self.by_priority.entry(entry.fixed.spec.priority).or_default();
        self.len += 1;
        self.len -= drop_first(line);
        // Those that raced with it for the lock may have overtaken it.
        if line.back().is_none_or(|last| last.fixed.number < entry.fixed.number) {
            line.push_back(entry);
        } else {
            self.len -= 1;
            self.put_back(entry);
        }
    }

    /// A query waits again at its old place, where it may still be found.
    pub(super) fn put_back(&mut self, entry: Arc<Entry>) {
        let line = self.by_priority.entry(entry.fixed.spec.priority).or_default();
        let at = line.partition_point(|other| other.fixed.number < entry.fixed.number);
        if line.get(at).is_none_or(|other| other.fixed.number != entry.fixed.number) {
            line.insert(at, entry);
            self.len += 1;
        }
    }

    /// A query of this priority has left. Those that went before it and were left to be met are met now.
    pub(super) fn left(&mut self, priority: u32) {
        if let Some(line) = self.by_priority.get_mut(&priority) {
            self.len -= drop_first(line);
            if line.is_empty() {
                self.by_priority.remove(&priority);
            }
        }
    }

    /// The one among those that are wanted that arrived first, as far as is looked.
    pub(super) fn oldest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<&Arc<Entry>> {
        let (mut budget, mut oldest) = (SCAN_LIMIT, None::<&Arc<Entry>>);
        for line in self.by_priority.values() {
            let mut seen = 0;
            let found = line.iter().take(budget).inspect(|_| seen += 1).find(|entry| wanted(entry));
            budget -= seen;
            let older = |entry: &&Arc<Entry>| oldest.is_none_or(|other| entry.fixed.number < other.fixed.number);
            oldest = found.filter(older).or(oldest);
        }
        oldest
    }

    /// The newest of the worst priority that no worker has had yet, unless it comes before too many others.
    pub(super) fn newest_of_worst(&mut self) -> Option<Arc<Entry>> {
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
        newest.find(|entry| waits(entry) && entry.is_untried()).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn keep_waiting(&mut self) {
        self.by_priority.retain(|_, line| {
            line.retain(waits);
            line.shrink_to(2 * line.len());
            !line.is_empty()
        });
        self.len = self.by_priority.values().map(VecDeque::len).sum();
    }

    /// All that wait.
    pub(super) fn drain(&mut self) -> Vec<Arc<Entry>> {
        self.len = 0;
        std::mem::take(&mut self.by_priority).into_values().flatten().filter(waits).collect()
    }
}

fn waits(entry: &Arc<Entry>) -> bool {
    !entry.spot.is_nowhere()
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
