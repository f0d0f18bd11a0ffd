//! Decides in which order the waiting queries of one kind are served. All of it runs under the lock of the queue.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    COMPACTION_SLACK,
    age_index::AgeIndex,
    fair_clock::FairClocks,
    lanes::Lanes,
    position::QueuePosition,
    rank_heap::{QueuedQuery, RankHeap},
    throttled::ThrottledQueries,
};
use crate::{
    broker::{Demand, memory::entry::Entry},
    model::WorkerId,
};

/// Promotions per call, capped to bound how long the lock is held.
const MAX_PROMOTED_PER_CALL: usize = 64;

#[derive(Debug)]
pub(super) struct Scheduler {
    aging: Option<Aging>,
    /// Steps of aging since the start.
    epoch: u64,
    pub clocks: FairClocks,
    /// Queries without a lane.
    pub free: RankHeap,
    free_waiting: usize,
    pub lanes: Lanes,
    throttled: ThrottledQueries,
    pub ages: AgeIndex,
    /// Number of waiting queries, queued or throttled.
    waiting: usize,
    /// True if there may be queries for other workers, beside what the caller asked for.
    pub wake_others: bool,
}

#[derive(Debug, Clone, Copy)]
struct Aging {
    start: Instant,
    step: Duration,
}

impl Scheduler {
    pub(super) fn new(aging: Option<Duration>, start: Instant) -> Self {
        Self {
            aging: aging.filter(|step| !step.is_zero()).map(|step| Aging { start, step }),
            epoch: 0,
            clocks: FairClocks::default(),
            free: RankHeap::default(),
            free_waiting: 0,
            lanes: Lanes::default(),
            throttled: ThrottledQueries::default(),
            ages: AgeIndex::default(),
            waiting: 0,
            wake_others: false,
        }
    }

    pub(super) fn open_count(&self) -> usize {
        self.free_waiting + self.lanes.open_count()
    }

    /// Adds a query that begins to wait.
    ///
    /// Its rank is its priority plus the current epoch, so a query that came an epoch earlier counts as one priority more
    /// urgent. Rank 0 is the most urgent: priority 0 begins there, other queries are promoted to it when the epoch reaches
    /// their rank.
    pub(super) fn push(&mut self, entry: Arc<Entry>, now: Instant) {
        self.promote(None, now);
        let priority = entry.meta.spec.priority;
        let rank = if priority == 0 { 0 } else { u64::from(priority) + self.epoch };
        let tag = self.clocks.join(rank, entry.owner());
        self.ages.push(entry.clone());
        self.waiting += 1;
        self.insert(QueuedQuery { rank, tag, entry });
    }

    /// Puts a query that was claimed back at its old place.
    pub(super) fn reinsert(&mut self, item: QueuedQuery) {
        self.clocks.rejoin(item.rank, item.owner(), item.tag);
        self.ages.reinsert(item.entry.clone());
        self.waiting += 1;
        self.insert(item);
    }

    fn insert(&mut self, item: QueuedQuery) {
        item.entry.position.set(QueuePosition::Queued { rank: item.rank });
        let Some(name) = item.lane().cloned() else {
            self.free_waiting += 1;
            self.free.push(item);
            return;
        };
        self.lanes.push(&name, item);
        self.publish_head(&name);
    }

    /// Removes a query that ended while it waited. True if a throttled one was queued in its place.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        match entry.position.get() {
            QueuePosition::None => false,
            QueuePosition::Queued { rank } => {
                self.leave_queue(entry, QueuePosition::None);
                self.leave(entry, rank);
                entry.owner().is_some_and(|owner| self.resume_owner(owner))
            }
            QueuePosition::Throttled { rank } => {
                entry.position.set(QueuePosition::None);
                self.throttled.remove(entry.owner().expect("only an owner has a limit"), entry.meta.lane.as_ref());
                self.leave(entry, rank);
                false
            }
        }
    }

    /// Counts a query out that is neither queued nor throttled any more.
    pub(super) fn leave(&mut self, entry: &Entry, rank: u64) {
        self.clocks.leave(rank, entry.owner());
        self.waiting -= 1;
        self.ages.on_query_left(entry.meta.spec.priority);
        if self.ages.len() > 2 * self.waiting + COMPACTION_SLACK {
            self.ages.compact();
        }
    }

    pub(super) fn leave_queue(&mut self, entry: &Entry, to: QueuePosition) {
        entry.position.set(to);
        if let Some(name) = &entry.meta.lane {
            self.lanes.on_query_left(name);
            self.publish_head(name);
            return;
        }
        self.free_waiting -= 1;
        if self.free.len() > 2 * self.free_waiting + COMPACTION_SLACK {
            self.free.keep(QueuedQuery::is_live);
        }
    }

    /// Takes a query out of the queue because its owner runs as many as it may.
    pub(super) fn throttle(&mut self, item: QueuedQuery) {
        self.leave_queue(&item.entry, QueuePosition::Throttled { rank: item.rank });
        let entry = item.entry.clone();
        let is_held = item.lane().is_some_and(|name| self.lanes.holder(name).is_some());
        self.throttled.push(entry.owner().expect("only an owner has a limit"), item, is_held);
    }

    /// Queues the first throttled queries of an owner that may run one more. True if there were any.
    pub(super) fn resume_owner(&mut self, owner: &str) -> bool {
        let Self { throttled, lanes, .. } = self;
        let back = throttled.resume_owner(owner, |name| lanes.holder(name).is_some());
        let any = !back.is_empty();
        for item in back {
            self.insert(item);
        }
        any
    }

    /// Adjusts throttling to a lane that was open and is held now: its queued queries no longer stand for their owners among
    /// the open ones, and its throttled ones may be what its holder runs next.
    pub(super) fn on_lane_held(&mut self, name: &Arc<str>) {
        if self.throttled.is_empty() {
            return;
        }
        for item in self.throttled.on_lane_held(name) {
            self.insert(item);
            self.wake_others = true;
        }
        let owners: BTreeSet<Box<str>> = match self.lanes.get_mut(name) {
            Some(lane) => lane.queries.live().filter_map(QueuedQuery::owner).map(Box::from).collect(),
            None => return,
        };
        for owner in owners {
            self.wake_others |= self.resume_owner(&owner);
        }
    }

    /// Publishes the first query of a lane in which something has changed.
    pub(super) fn publish_head(&mut self, name: &str) {
        let Self { lanes, clocks, epoch, .. } = self;
        if let Some(lane) = lanes.get_mut(name) {
            promote(&mut lane.queries, *epoch, clocks);
        }
        lanes.publish_head(name);
    }

    /// Moves queries whose rank the epoch has reached to rank 0: those without a lane, and those in lanes whose first query is
    /// due. Other lanes follow when something changes in them.
    pub(super) fn promote(&mut self, worker: Option<WorkerId>, now: Instant) {
        let Some(aging) = self.aging else { return };
        let steps = now.saturating_duration_since(aging.start).as_nanos() / aging.step.as_nanos();
        self.epoch = self.epoch.max(u64::try_from(steps).unwrap_or(u64::MAX >> 8));
        promote(&mut self.free, self.epoch, &mut self.clocks);
        for holder in [None, worker].into_iter().take(1 + usize::from(worker.is_some())) {
            for _ in 0..MAX_PROMOTED_PER_CALL {
                let Some(name) = self.lanes.pop_promotable(holder, self.epoch) else { break };
                self.publish_head(&name);
            }
        }
    }

    pub(super) fn hold_lane(&mut self, name: &Arc<str>, worker: WorkerId) -> bool {
        let was_open = self.lanes.holder(name).is_none();
        let held = self.lanes.hold(name, worker);
        self.publish_head(name);
        if was_open {
            self.on_lane_held(name);
        }
        held
    }

    pub(super) fn release_lanes(&mut self, worker: WorkerId, name: Option<&str>) {
        for name in self.lanes.release(worker, name) {
            self.publish_head(&name);
        }
    }

    pub(super) fn demand(&mut self, most: usize) -> Demand {
        let lanes = self.lanes.first_open(most);
        let open = |entry: &Entry| {
            let held = entry.meta.lane.as_ref().and_then(|name| self.lanes.holder(name)).is_some();
            entry.position.is_queued() && !held
        };
        // The age index looks at a bounded number; the next queries to be served are always considered.
        let oldest = self.ages.oldest(open).map(|entry| entry.submitted);
        let next = self.free.first_live().map(|item| item.entry.submitted);
        let next_in_lane = self.lanes.first_open(1).first().map(|item| item.entry.submitted);
        Demand {
            waiting: self.waiting,
            open: self.open_count(),
            oldest: [oldest, next, next_in_lane].into_iter().flatten().min(),
            lanes_since: lanes.iter().map(|item| item.entry.submitted).collect(),
            lanes: lanes.iter().filter_map(QueuedQuery::lane).cloned().collect(),
        }
    }

    /// Takes out all waiting queries. Lanes stay with their holders.
    pub(super) fn drain(&mut self) -> Vec<Arc<Entry>> {
        let all = self.ages.drain();
        for entry in &all {
            entry.position.set(QueuePosition::None);
        }
        self.clocks.clear();
        self.free = RankHeap::default();
        self.free_waiting = 0;
        self.lanes.clear();
        self.throttled.clear();
        self.waiting = 0;
        all
    }
}

/// Moves each due query to rank 0, once, with a tag among the queries that it now competes with.
fn promote(heap: &mut RankHeap, epoch: u64, clocks: &mut FairClocks) {
    let mut moved = 0;
    while moved < MAX_PROMOTED_PER_CALL {
        let Some(item) = heap.pop_promotable(epoch) else { break };
        if item.is_live() {
            clocks.leave(item.rank, item.owner());
            let tag = clocks.join(0, item.owner());
            item.entry.position.set(QueuePosition::Queued { rank: 0 });
            heap.push(QueuedQuery { rank: 0, tag, ..item });
            moved += 1;
        }
    }
}
