//! The waiting queries of one kind, in the order in which they are to be served.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::entry::Entry;
use crate::{
    broker::{Claimant, Demand, Scope},
    model::WorkerId,
    sync::Mutex,
};

#[derive(Debug, Default)]
pub(super) struct KindQueue {
    inner: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// By priority, then arrival.
    waiting: BTreeMap<(u32, u64), Arc<Entry>>,
    holders: HashMap<Arc<str>, WorkerId>,
}

fn key(entry: &Entry) -> (u32, u64) {
    (entry.fixed.spec.priority, entry.fixed.number)
}

impl Line {
    fn holder_of(&self, entry: &Entry) -> Option<WorkerId> {
        entry.fixed.lane.as_ref().and_then(|lane| self.holders.get(lane)).copied()
    }

    fn open(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.waiting.values().filter(|entry| self.holder_of(entry).is_none())
    }
}

impl KindQueue {
    pub(super) fn push(&self, entry: &Arc<Entry>) {
        let mut queue = self.inner.lock();
        // Whoever ended it in between has found it in no line.
        if entry.is_pending() {
            queue.waiting.insert(key(entry), entry.clone());
        }
    }

    /// A query no longer waits.
    pub(super) fn remove(&self, entry: &Entry) {
        self.inner.lock().waiting.remove(&key(entry));
    }

    /// The first in line for this claimant. It may have stopped waiting: the caller checks under the entry's own lock.
    pub(super) fn take(&self, claimant: Claimant<'_>) -> Option<Arc<Entry>> {
        let mut queue = self.inner.lock();
        let suits = |entry: &&Arc<Entry>| match queue.holder_of(entry) {
            Some(holder) => holder == claimant.worker,
            None => claimant.scope == Scope::Open,
        };
        let first = queue.waiting.values().find(suits)?.clone();
        queue.waiting.remove(&key(&first));
        if let Some(lane) = first.fixed.lane.as_ref().filter(|_| claimant.takes_lane) {
            queue.holders.insert(lane.clone(), claimant.worker);
        }
        Some(first)
    }

    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        std::mem::take(&mut self.inner.lock().waiting).into_values().collect()
    }

    pub(super) fn hold(&self, lane: &Arc<str>, worker: WorkerId) -> bool {
        *self.inner.lock().holders.entry(lane.clone()).or_insert(worker) == worker
    }

    /// Says whether queries wait that did so for this worker alone.
    pub(super) fn let_go(&self, worker: WorkerId, lane: Option<&str>) -> bool {
        let mut queue = self.inner.lock();
        let before = queue.open().count();
        queue.holders.retain(|held, holder| *holder != worker || lane.is_some_and(|lane| *lane != **held));
        queue.open().count() > before
    }

    pub(super) fn holder(&self, lane: &str) -> Option<WorkerId> {
        self.inner.lock().holders.get(lane).copied()
    }

    pub(super) fn open(&self) -> usize {
        self.inner.lock().open().count()
    }

    pub(super) fn waits_for(&self, worker: WorkerId) -> bool {
        let queue = self.inner.lock();
        queue.waiting.values().any(|entry| queue.holder_of(entry) == Some(worker))
    }

    pub(super) fn demand(&self, most: usize) -> Demand {
        let queue = self.inner.lock();
        let mut demand = Demand { open: queue.open().count(), ..Demand::default() };
        demand.oldest = queue.open().map(|entry| entry.submitted).min();
        for entry in queue.open() {
            let Some(lane) = entry.fixed.lane.as_ref().filter(|lane| !demand.lanes.contains(lane)) else { continue };
            if demand.lanes.len() == most {
                break;
            }
            demand.lanes.push(lane.clone());
            demand.lanes_since.push(entry.submitted);
        }
        demand
    }
}
