//! Waiting queries whose owner runs as many as it may, by owner.
//!
//! An owner that may run one more gets one query queued among those that any worker could take, and one more in each lane
//! that is held: a query that waits for its own worker must not stand in for another whose worker may be free.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    COMPACTION_SLACK,
    position::QueuePosition,
    rank_heap::{QueuedQuery, RankHeap},
};

#[derive(Debug, Default)]
pub(super) struct ThrottledQueries {
    owners: HashMap<Box<str>, ThrottledOwner>,
    /// Number of throttled queries by lane and owner.
    lanes: HashMap<Arc<str>, BTreeMap<Box<str>, usize>>,
}

#[derive(Debug, Default)]
struct ThrottledOwner {
    open: RankHeap,
    /// Queries in lanes that were held when last looked at. All lanes that are held now are among them.
    held: BTreeMap<Arc<str>, RankHeap>,
    waiting: usize,
}

fn waits(item: &QueuedQuery) -> bool {
    matches!(item.entry.position.get(), QueuePosition::Throttled { .. })
}

fn pop(heap: &mut RankHeap) -> Option<QueuedQuery> {
    std::iter::from_fn(|| heap.pop()).find(waits)
}

impl ThrottledQueries {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn push(&mut self, owner: &str, item: QueuedQuery, is_held: bool) {
        if !self.owners.contains_key(owner) {
            self.owners.insert(owner.into(), ThrottledOwner::default());
        }
        let group = self.owners.get_mut(owner).expect("inserted if it was missing");
        group.waiting += 1;
        let Some(lane) = item.lane().cloned() else { return group.open.push(item) };
        *self.lanes.entry(lane.clone()).or_default().entry(owner.into()).or_default() += 1;
        let order = if is_held { group.held.entry(lane).or_default() } else { &mut group.open };
        order.push(item);
    }

    /// Takes out the queries that an owner may try once it may run one more.
    pub(super) fn resume_owner(&mut self, owner: &str, is_held: impl Fn(&str) -> bool) -> Vec<QueuedQuery> {
        let Some(group) = self.owners.get_mut(owner) else { return Vec::new() };
        let mut back = Vec::new();
        for (_, mut opened) in group.held.extract_if(.., |lane, _| !is_held(lane)) {
            std::iter::from_fn(|| pop(&mut opened)).for_each(|item| group.open.push(item));
        }
        back.extend(pop(&mut group.open));
        group.held.retain(|_, order| {
            back.extend(pop(order));
            order.len() > 0
        });
        group.compact();
        for item in &back {
            self.uncount(owner, item.lane());
        }
        back
    }

    /// Takes out the first query of each owner in a lane that is held from now on.
    pub(super) fn on_lane_held(&mut self, lane: &Arc<str>) -> Vec<QueuedQuery> {
        let owners: Vec<_> = self.lanes.get(lane).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        let mut back = Vec::new();
        for owner in &owners {
            let Some(group) = self.owners.get_mut(owner) else { continue };
            let mut order = group.held.remove(lane).unwrap_or_default();
            let mut found = Vec::new();
            group.open.keep(|item| {
                let elsewhere = item.lane() != Some(lane);
                found.extend((!elsewhere).then(|| item.clone()));
                elsewhere
            });
            for item in found {
                order.push(item);
            }
            back.extend(pop(&mut order));
            if order.len() > 0 {
                group.held.insert(lane.clone(), order);
            }
        }
        for item in &back {
            self.uncount(item.owner().unwrap_or_default(), Some(lane));
        }
        back
    }

    /// Counts a query out that no longer waits.
    pub(super) fn remove(&mut self, owner: &str, lane: Option<&Arc<str>>) {
        self.uncount(owner, lane);
        if let Some(group) = self.owners.get_mut(owner) {
            group.compact();
        }
    }

    fn uncount(&mut self, owner: &str, lane: Option<&Arc<str>>) {
        if let Some(lane) = lane
            && let Some(owners) = self.lanes.get_mut(lane)
        {
            if let Some(count) = owners.get_mut(owner) {
                *count -= 1;
                if *count == 0 {
                    owners.remove(owner);
                }
            }
            if owners.is_empty() {
                self.lanes.remove(lane);
            }
        }
        let Some(group) = self.owners.get_mut(owner) else { return };
        group.waiting -= 1;
        if group.waiting == 0 {
            self.owners.remove(owner);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl ThrottledOwner {
    /// Drops stale entries, where they are the greater part.
    fn compact(&mut self) {
        if self.open.len() > 2 * self.waiting + COMPACTION_SLACK {
            self.open.keep(waits);
        }
        let held: usize = self.held.values().map(RankHeap::len).sum();
        if held > 2 * self.waiting + COMPACTION_SLACK {
            self.held.retain(|_, order| {
                order.keep(waits);
                order.len() > 0
            });
        }
    }
}
