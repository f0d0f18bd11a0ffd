//! The waiting queries of one kind, in the order in which they are to be served.

mod age_index;
mod claim;
mod fair_clock;
mod lanes;
mod position;
mod rank_heap;
mod scheduler;
mod throttled;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::entry::Entry;
use crate::{
    broker::{Claimant, Demand},
    model::WorkerId,
    sync::{AtomicBool, AtomicUsize, Mutex},
};
pub(super) use claim::ClaimDecision;
pub(super) use position::AtomicQueuePosition;
pub(super) use rank_heap::{QueuedQuery, RankTag};
use scheduler::Scheduler;

#[cfg(test)]
pub(super) use claim::MAX_SKIPPED_PER_CLAIM;

/// Stale entries that a heap or list may hold beside twice its live ones before it is compacted.
const COMPACTION_SLACK: usize = 16;

/// The waiting queries of one kind, behind one lock.
#[derive(Debug)]
pub(super) struct KindQueue {
    scheduler: Mutex<Scheduler>,
    /// Copy of the scheduler's count, read without its lock.
    open: AtomicUsize,
    wake_others: AtomicBool,
}

impl KindQueue {
    pub(super) fn new(aging: Option<Duration>) -> Self {
        let scheduler = Mutex::new(Scheduler::new(aging, Instant::now()));
        Self { scheduler, open: AtomicUsize::new(0), wake_others: AtomicBool::new(false) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let mut scheduler = self.scheduler.lock();
        let result = change(&mut scheduler);
        self.open.store(scheduler.open_count(), Relaxed);
        if std::mem::take(&mut scheduler.wake_others) {
            self.wake_others.store(true, Relaxed);
        }
        result
    }

    /// Takes the request to wake other workers: a claim or a newly held lane has left queries for them.
    pub(super) fn take_wake_request(&self) -> bool {
        self.wake_others.load(Relaxed) && self.wake_others.swap(false, Relaxed)
    }

    pub(super) fn push(&self, entry: &Arc<Entry>, now: Instant) {
        self.with(|scheduler| {
            // A query that ended in between was not found in the queue by the one who ended it.
            if entry.is_pending() {
                scheduler.push(entry.clone(), now);
            }
        });
    }

    /// Puts a query that was claimed back at its old place.
    pub(super) fn reinsert(&self, item: QueuedQuery) {
        self.with(|scheduler| {
            if item.entry.is_pending() {
                scheduler.reinsert(item);
            }
        });
    }

    /// Removes a query that ended while it waited. True if another one may be tried in its place.
    pub(super) fn remove(&self, entry: &Entry) -> bool {
        self.with(|scheduler| scheduler.remove(entry))
    }

    /// Takes the first query for a claimant that `decide` lets it take.
    pub(super) fn take<T>(
        &self,
        claimant: Claimant<'_>,
        now: Instant,
        decide: impl FnMut(&QueuedQuery) -> ClaimDecision<T>,
    ) -> Option<T> {
        self.with(|scheduler| scheduler.take(claimant, now, decide))
    }

    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        self.with(Scheduler::drain)
    }

    /// Lets an owner run one more query. True if one had waited for that.
    pub(super) fn resume_owner(&self, owner: &str) -> bool {
        self.with(|scheduler| scheduler.resume_owner(owner))
    }

    /// The query that a more urgent one would push out of a full queue.
    pub(super) fn shed_candidate(&self) -> Option<Arc<Entry>> {
        self.scheduler.lock().ages.shed_candidate()
    }

    pub(super) fn hold_lane(&self, lane: &Arc<str>, worker: WorkerId) -> bool {
        self.with(|scheduler| scheduler.hold_lane(lane, worker))
    }

    /// True if more queries are open to everyone now.
    pub(super) fn release_lanes(&self, worker: WorkerId, lane: Option<&str>) -> bool {
        self.with(|scheduler| {
            let before = scheduler.open_count();
            scheduler.release_lanes(worker, lane);
            scheduler.open_count() > before
        })
    }

    pub(super) fn lane_holder(&self, lane: &str) -> Option<WorkerId> {
        self.scheduler.lock().lanes.holder(lane)
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub(super) fn has_query_for(&self, worker: WorkerId) -> bool {
        self.scheduler.lock().lanes.waiting_count_for(worker) > 0
    }

    /// Number of entries in the heaps and lists, live or stale.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let scheduler = self.scheduler.lock();
        scheduler.free.len() + scheduler.ages.len() + scheduler.lanes.size() + scheduler.clocks.owners()
    }

    pub(super) fn oldest_waiting(&self) -> Option<Instant> {
        self.scheduler.lock().ages.oldest(|entry| !entry.position.is_none()).map(|entry| entry.submitted)
    }

    pub(super) fn demand(&self, lanes: usize) -> Demand {
        self.scheduler.lock().demand(lanes)
    }
}
