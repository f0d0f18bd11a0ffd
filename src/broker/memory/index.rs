//! Finds queries by id and by order of arrival, and forgets the ended ones when their time is up.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    broker::{Page, QueryFilter, QueryPage},
    model::QueryId,
};

use super::entry::Entry;

/// Entries looked at while filling one page, so that a filter that matches nothing cannot hold the lock for long.
const SCAN_LIMIT: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Index {
    by_id: HashMap<QueryId, Arc<Entry>>,
    by_arrival: BTreeMap<u64, Arc<Entry>>,
    /// Ended queries, in the order in which they ended.
    ended: VecDeque<(Instant, Arc<Entry>)>,
}

impl Index {
    pub(super) fn get(&self, id: &QueryId) -> Option<Arc<Entry>> {
        self.by_id.get(id).cloned()
    }

    pub(super) fn insert(&mut self, entry: &Arc<Entry>) {
        self.by_id.insert(entry.id.clone(), entry.clone());
        self.by_arrival.insert(entry.number, entry.clone());
    }

    pub(super) fn ended(&mut self, now: Instant, entry: Arc<Entry>) {
        self.ended.push_back((now, entry));
    }

    /// Takes out the ended queries that are too old or too many. The caller drops them, outside the lock.
    pub(super) fn forget(&mut self, now: Instant, retention: Duration, max_ended: usize) -> Vec<Arc<Entry>> {
        let mut forgotten = Vec::new();
        while let Some((at, _)) = self.ended.front() {
            if self.ended.len() <= max_ended && now.duration_since(*at) < retention {
                break;
            }
            let (_, entry) = self.ended.pop_front().expect("the queue has a front");
            self.by_id.remove(&entry.id);
            self.by_arrival.remove(&entry.number);
            forgotten.push(entry);
        }
        forgotten
    }

    pub(super) fn list(&self, filter: &QueryFilter, page: Page) -> QueryPage {
        let mut queries = Vec::new();
        let mut last = None;
        let from = page.after.saturating_add(1);
        for (scanned, (number, entry)) in self.by_arrival.range(from..).enumerate() {
            if queries.len() == page.size || scanned == SCAN_LIMIT {
                return QueryPage { queries, next: last };
            }
            last = Some(*number);
            if filter.kind.as_ref().is_some_and(|kind| **kind != *entry.spec.kind) {
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
