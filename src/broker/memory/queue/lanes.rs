//! Lanes: queries that must reach the same worker, with the worker that holds them.
//!
//! A lane publishes only its first query, its head: in the heap of its holder, or in that of all open lanes. So opening a lane, or
//! holding it, costs the same however many queries wait in it, and it is never in the way of another. A head that was
//! published before stays in those heaps until it is met, and is told from the current one by its key.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    COMPACTION_SLACK,
    rank_heap::{QueuedQuery, RankHeap, RankKey},
};
use crate::model::WorkerId;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Lanes that are held or have waiting queries.
    all: HashMap<Arc<str>, Lane>,
    open: LaneHeads,
    holders: HashMap<WorkerId, LaneHolder>,
    held: usize,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub queries: RankHeap,
    waiting: usize,
    holder: Option<WorkerId>,
    /// The query that is published as its first.
    head: Option<RankKey>,
}

/// The published heads of some lanes.
#[derive(Debug, Default)]
struct LaneHeads {
    heap: RankHeap,
    /// Number of waiting queries in all of these lanes.
    waiting: usize,
}

#[derive(Debug, Default)]
struct LaneHolder {
    lanes: BTreeSet<Arc<str>>,
    heads: LaneHeads,
}

impl Lanes {
    /// Number of waiting queries in lanes that nobody holds.
    pub(super) fn open_count(&self) -> usize {
        self.open.waiting
    }

    /// Number of waiting queries in lanes that this worker holds.
    pub(super) fn waiting_count_for(&self, worker: WorkerId) -> usize {
        self.holders.get(&worker).map_or(0, |holder| holder.heads.waiting)
    }

    pub(super) fn holder(&self, name: &str) -> Option<WorkerId> {
        self.all.get(name)?.holder
    }

    pub(super) fn push(&mut self, name: &Arc<str>, item: QueuedQuery) {
        if !self.all.contains_key(name) {
            self.all.insert(name.clone(), Lane::default());
        }
        let lane = self.all.get_mut(name).expect("inserted if it was missing");
        lane.queries.push(item);
        lane.waiting += 1;
        let holder = lane.holder;
        self.heads_mut(holder).waiting += 1;
    }

    /// Counts a query out that no longer waits in its lane.
    pub(super) fn on_query_left(&mut self, name: &str) {
        let lane = self.all.get_mut(name).expect("a lane with waiting queries is known");
        lane.waiting -= 1;
        let holder = lane.holder;
        if lane.queries.len() > 2 * lane.waiting + COMPACTION_SLACK {
            lane.queries.keep(QueuedQuery::is_live);
        }
        self.heads_mut(holder).waiting -= 1;
    }

    /// The first query of the lanes of a holder, or of the open ones.
    pub(super) fn first(&mut self, holder: Option<WorkerId>) -> Option<RankKey> {
        loop {
            let heads = match holder {
                None => &self.open,
                Some(worker) => &self.holders.get(&worker)?.heads,
            };
            let item = heads.heap.peek()?;
            if self.is_current(item, holder) {
                return Some(item.key());
            }
            self.heads_mut(holder).heap.pop();
        }
    }

    /// Takes out the query that [`Self::first`] has found.
    pub(super) fn pop(&mut self, holder: Option<WorkerId>) -> Option<QueuedQuery> {
        let head = self.heads_mut(holder).heap.pop()?;
        let lane = self.all.get_mut(head.lane()?)?;
        lane.head = None;
        lane.queries.pop()
    }

    /// Takes out the head of a lane whose rank the epoch has reached, in the lanes of a holder or in the open ones.
    pub(super) fn pop_promotable(&mut self, holder: Option<WorkerId>, epoch: u64) -> Option<Arc<str>> {
        loop {
            let item = self.heads_if_any(holder)?.heap.pop_promotable(epoch)?;
            if self.is_current(&item, holder) {
                let name = item.lane()?;
                self.all.get_mut(name)?.head = None;
                return Some(name.clone());
            }
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Lane> {
        self.all.get_mut(name)
    }

    /// Publishes the first query of a lane, or drops an empty open one. To be called whenever something has changed in it.
    pub(super) fn publish_head(&mut self, name: &str) {
        let Some(lane) = self.all.get_mut(name) else { return };
        let holder = lane.holder;
        let Some(first) = lane.queries.first_live() else {
            lane.head = None;
            if holder.is_none() {
                self.all.remove(name);
                self.compact(None);
            }
            return;
        };
        if lane.head == Some(first.key()) {
            return;
        }
        lane.head = Some(first.key());
        let first = first.clone();
        self.heads_mut(holder).heap.push(first);
        self.compact(holder);
    }

    pub(super) fn hold(&mut self, name: &Arc<str>, worker: WorkerId) -> bool {
        let lane = self.all.entry(name.clone()).or_default();
        if let Some(holder) = lane.holder {
            return holder == worker;
        }
        lane.holder = Some(worker);
        lane.head = None;
        let waiting = lane.waiting;
        self.held += 1;
        self.open.waiting -= waiting;
        let holder = self.holders.entry(worker).or_default();
        holder.lanes.insert(name.clone());
        holder.heads.waiting += waiting;
        true
    }

    /// Opens the lanes of a worker, or one of them, and returns their names.
    pub(super) fn release(&mut self, worker: WorkerId, name: Option<&str>) -> Vec<Arc<str>> {
        let Some(holder) = self.holders.get_mut(&worker) else { return Vec::new() };
        let freed: Vec<Arc<str>> = match name {
            Some(name) => holder.lanes.take(name).into_iter().collect(),
            None => std::mem::take(&mut holder.lanes).into_iter().collect(),
        };
        self.held -= freed.len();
        for name in &freed {
            let lane = self.all.get_mut(name).expect("a held lane is known");
            lane.holder = None;
            lane.head = None;
            holder.heads.waiting -= lane.waiting;
            self.open.waiting += lane.waiting;
        }
        if holder.lanes.is_empty() {
            self.holders.remove(&worker);
        }
        freed
    }

    /// The first `most` open lanes, each with its first query.
    pub(super) fn first_open(&mut self, most: usize) -> Vec<QueuedQuery> {
        let mut found: Vec<QueuedQuery> = Vec::new();
        while found.len() < most
            && let Some(key) = self.first(None)
        {
            // A head that was published, withdrawn and published again is there twice, in a row.
            let again = found.last().is_some_and(|last| last.key() == key);
            found.extend(self.open.heap.pop().filter(|_| !again));
        }
        for item in &found {
            self.open.heap.push(item.clone());
        }
        found
    }

    /// Drops all queries. Lanes stay with their holders.
    pub(super) fn clear(&mut self) {
        self.all.retain(|_, lane| lane.holder.is_some());
        for lane in self.all.values_mut() {
            *lane = Lane { holder: lane.holder, ..Lane::default() };
        }
        self.open = LaneHeads::default();
        for holder in self.holders.values_mut() {
            holder.heads = LaneHeads::default();
        }
    }

    /// True if this is the current head of its lane, and published here.
    fn is_current(&self, item: &QueuedQuery, holder: Option<WorkerId>) -> bool {
        let lane = item.lane().and_then(|name| self.all.get(name));
        lane.is_some_and(|lane| lane.holder == holder && lane.head == Some(item.key()))
    }

    fn heads_if_any(&mut self, holder: Option<WorkerId>) -> Option<&mut LaneHeads> {
        match holder {
            None => Some(&mut self.open),
            Some(worker) => self.holders.get_mut(&worker).map(|holder| &mut holder.heads),
        }
    }

    fn heads_mut(&mut self, holder: Option<WorkerId>) -> &mut LaneHeads {
        self.heads_if_any(holder).expect("a worker that holds a lane is known")
    }

    /// Drops heads that are no longer published, if they are the greater part.
    fn compact(&mut self, holder: Option<WorkerId>) {
        let lanes = match holder {
            None => self.all.len() - self.held,
            Some(worker) => self.holders.get(&worker).map_or(0, |holder| holder.lanes.len()),
        };
        if self.heads_mut(holder).heap.len() <= 2 * lanes + COMPACTION_SLACK {
            return;
        }
        let mut heap = std::mem::take(&mut self.heads_mut(holder).heap);
        let mut seen = HashSet::new();
        heap.keep(|item| {
            // Not twice, as in `first_open`.
            self.is_current(item, holder) && seen.insert(item.key().number)
        });
        self.heads_mut(holder).heap = heap;
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let waiting: usize = self.all.values().map(|lane| lane.queries.len()).sum();
        let heads: usize = self.holders.values().map(|holder| holder.heads.heap.len()).sum();
        self.all.len() + waiting + heads + self.open.heap.len()
    }
}
