//! Finds queries by id and by order of arrival, and evicts ended ones at the end of their retention.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashSet, VecDeque},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use foldhash::quality::RandomState;

use crate::{
    broker::{DeadLetterPage, Page, QueryFilter, QueryPage},
    model::QueryId,
};

use super::{MemoryLimits, arrivals::Arrivals, entry::Entry};

/// Entries looked at while filling one page, capped to bound how long the lock is held.
const PAGE_SCAN_LIMIT: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct QueryIndex {
    by_id: HashSet<ById, RandomState>,
    by_arrival: Arrivals,
    /// Ended queries, in the order in which they ended.
    ended: VecDeque<RetainedQuery>,
    ended_bytes: usize,
    /// Dead letters, by arrival number.
    dead: BTreeMap<u64, RetainedQuery>,
    dead_bytes: usize,
}

/// A query that has ended.
#[derive(Debug)]
struct RetainedQuery {
    since: Instant,
    /// Weight, which no longer changes.
    bytes: usize,
    entry: Arc<Entry>,
}

/// Lets a set find a query by its id without storing the id twice.
#[derive(Debug)]
struct ById(Arc<Entry>);

impl Borrow<QueryId> for ById {
    fn borrow(&self) -> &QueryId {
        &self.0.meta.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.meta.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.meta.id == other.0.meta.id
    }
}

impl Eq for ById {}

impl QueryIndex {
    pub(super) fn get(&self, id: &QueryId) -> Option<Arc<Entry>> {
        self.by_id.get(id).map(|found| found.0.clone())
    }

    pub(super) fn insert(&mut self, entry: &Arc<Entry>) {
        self.by_id.insert(ById(entry.clone()));
        self.by_arrival.push(entry.clone());
    }

    pub(super) fn retain(&mut self, now: Instant, entry: Arc<Entry>) {
        let kept = RetainedQuery { since: now, bytes: entry.weight(), entry };
        if kept.entry.is_dead_letter() {
            kept.entry.meta.kind_state.metrics.add_dead_letter();
            self.dead_bytes += kept.bytes;
            self.dead.insert(kept.entry.meta.number, kept);
        } else {
            self.keep_ended(kept);
        }
    }

    fn keep_ended(&mut self, kept: RetainedQuery) {
        self.ended_bytes += kept.bytes;
        self.ended.push_back(kept);
    }

    /// Takes out the ended queries that are too old, too many or too large. The newest one stays regardless of its size. The caller
    /// drops them, outside the lock.
    pub(super) fn evict(&mut self, now: Instant, limits: &MemoryLimits) -> Vec<Arc<Entry>> {
        let mut evicted = Vec::new();
        while let Some(oldest) = self.ended.front() {
            let count = self.ended.len();
            let too_many = count > limits.max_ended || (count > 1 && self.ended_bytes > limits.max_ended_bytes);
            if !too_many && now.duration_since(oldest.since) < limits.retention {
                break;
            }
            self.ended_bytes -= oldest.bytes;
            evicted.extend(self.ended.pop_front().map(|kept| kept.entry));
        }
        while let Some((_, oldest)) = self.dead.first_key_value() {
            let count = self.dead.len();
            let too_many = count > limits.max_dead || (count > 1 && self.dead_bytes > limits.max_dead_bytes);
            if !too_many && now.duration_since(oldest.since) < limits.max_dead_age {
                break;
            }
            let entry = oldest.entry.clone();
            self.remove_dead(&entry);
            evicted.push(entry);
        }
        for entry in &evicted {
            self.remove(entry);
        }
        evicted
    }

    fn remove(&mut self, entry: &Entry) {
        self.by_id.remove(&entry.meta.id);
        self.by_arrival.remove(entry.meta.number);
    }

    /// The queries that have not ended.
    pub(super) fn unfinished(&self) -> Vec<Arc<Entry>> {
        self.by_arrival.after(0).filter(|entry| !entry.state().is_terminal()).cloned().collect()
    }

    pub(super) fn dead_letter(&self, id: &QueryId) -> Option<Arc<Entry>> {
        self.get(id).filter(|entry| self.dead.contains_key(&entry.meta.number))
    }

    pub(super) fn dead_letters(&self, kind: Option<&str>, page: Page) -> DeadLetterPage {
        let letters = self.dead.range(page.after.saturating_add(1)..).map(|(_, kept)| &kept.entry);
        let mut of_kind = letters.filter(|entry| kind.is_none_or(|kind| *kind == *entry.meta.spec.kind)).peekable();
        let mut found: Vec<&Arc<Entry>> = Vec::new();
        while let Some(entry) = of_kind.next_if(|_| found.len() < page.size) {
            found.push(entry);
        }
        DeadLetterPage {
            next: of_kind.peek().and_then(|_| found.last().map(|entry| entry.meta.number)),
            letters: found.iter().filter_map(|entry| entry.dead_letter()).collect(),
        }
    }

    /// Turns a dead letter into a plain ended query, whose retention begins now.
    pub(super) fn on_requeued(&mut self, now: Instant, entry: &Arc<Entry>) {
        if let Some(kept) = self.remove_dead(entry) {
            self.keep_ended(RetainedQuery { since: now, ..kept });
        }
    }

    /// Removes a dead letter.
    pub(super) fn purge(&mut self, id: &QueryId) -> Option<Arc<Entry>> {
        let entry = self.dead_letter(id)?;
        self.remove_dead(&entry);
        self.remove(&entry);
        Some(entry)
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> (usize, usize) {
        (self.ended_bytes, self.dead_bytes)
    }

    /// Length of the order of arrival, holes included.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.by_arrival.len()
    }

    fn remove_dead(&mut self, entry: &Entry) -> Option<RetainedQuery> {
        let kept = self.dead.remove(&entry.meta.number)?;
        self.dead_bytes -= kept.bytes;
        entry.meta.kind_state.metrics.remove_dead_letter();
        Some(kept)
    }

    pub(super) fn list(&self, filter: &QueryFilter, page: Page) -> QueryPage {
        let mut queries = Vec::new();
        let mut last = None;
        for (scanned, entry) in self.by_arrival.after(page.after).enumerate() {
            if queries.len() == page.size || scanned == PAGE_SCAN_LIMIT {
                return QueryPage { queries, next: last };
            }
            last = Some(entry.meta.number);
            if filter.kind.as_ref().is_some_and(|kind| **kind != *entry.meta.spec.kind) {
                continue;
            }
            let info = entry.info();
            if filter.states.is_empty() || filter.states.contains(&info.state) {
                queries.push(info);
            }
        }
        QueryPage { queries, next: None }
    }
}
