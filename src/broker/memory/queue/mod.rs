//! The waiting queries of one kind, in the order in which they are to be served.

mod ages;
mod aside;
mod clock;
mod lanes;
mod lines;
mod order;
mod spot;
mod take;

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
use lines::Lines;
pub(super) use order::{Item, Ticket};
pub(super) use spot::Spot;
pub(super) use take::Verdict;

#[cfg(test)]
pub(super) use take::MET_AT_ONCE;

/// So many that no longer wait are let be in any of the lines.
const TOLERATED: usize = 16;

/// Locks are taken in this order: the index, a queue, a query, the owners.
#[derive(Debug)]
pub(super) struct KindQueue {
    lines: Mutex<Lines>,
    /// As the lines have it, for whoever asks without waiting for the lock.
    open: AtomicUsize,
    news: AtomicBool,
}

impl KindQueue {
    pub(super) fn new(aging: Option<Duration>) -> Self {
        let lines = Mutex::new(Lines::new(aging, Instant::now()));
        Self { lines, open: AtomicUsize::new(0), news: AtomicBool::new(false) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Lines) -> T) -> T {
        let mut lines = self.lines.lock();
        let result = change(&mut lines);
        self.open.store(lines.open(), Relaxed);
        if std::mem::take(&mut lines.news) {
            self.news.store(true, Relaxed);
        }
        result
    }

    /// Whether a claim, or a lane that was held, has left something for others to look at. Said once.
    pub(super) fn has_news(&self) -> bool {
        self.news.load(Relaxed) && self.news.swap(false, Relaxed)
    }

    pub(super) fn push(&self, entry: &Arc<Entry>, now: Instant) {
        self.with(|lines| {
            // Whoever ended it in between has found it in no line.
            if entry.is_pending() {
                lines.push(entry.clone(), now);
            }
        });
    }

    /// A query that was taken waits again, at its old place.
    pub(super) fn put_back(&self, item: Item) {
        self.with(|lines| {
            if item.entry.is_pending() {
                lines.put_back(item);
            }
        });
    }

    /// A query ended while it waited. Says whether another one may be tried in its place.
    pub(super) fn remove(&self, entry: &Entry) -> bool {
        self.with(|lines| lines.remove(entry))
    }

    /// Takes the first query for a claimant that `decide` lets it take.
    pub(super) fn take<T>(
        &self,
        claimant: Claimant<'_>,
        now: Instant,
        decide: impl FnMut(&Item) -> Verdict<T>,
    ) -> Option<T> {
        self.with(|lines| lines.take(claimant, now, decide))
    }

    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        self.with(Lines::drain)
    }

    /// An owner may run one more. Says whether a query had waited for that.
    pub(super) fn bring_back(&self, owner: &str) -> bool {
        self.with(|lines| lines.bring_back(owner))
    }

    /// Whom a more urgent query would push out of a full queue.
    pub(super) fn newest_of_worst(&self) -> Option<Arc<Entry>> {
        self.lines.lock().ages.newest_of_worst()
    }

    pub(super) fn hold(&self, lane: &Arc<str>, worker: WorkerId) -> bool {
        self.with(|lines| lines.hold(lane, worker))
    }

    /// Says whether more queries are open to everyone now.
    pub(super) fn let_go(&self, worker: WorkerId, lane: Option<&str>) -> bool {
        self.with(|lines| {
            let before = lines.open();
            lines.let_go(worker, lane);
            lines.open() > before
        })
    }

    pub(super) fn holder(&self, lane: &str) -> Option<WorkerId> {
        self.lines.lock().lanes.holder(lane)
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub(super) fn waits_for(&self, worker: WorkerId) -> bool {
        self.lines.lock().lanes.waiting_for(worker) > 0
    }

    /// How many entries there are in the heaps and the lists, live or not.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let lines = self.lines.lock();
        lines.free.len() + lines.ages.len() + lines.lanes.size() + lines.clocks.owners()
    }

    /// When the query that came first of all that wait was submitted.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lines.lock().ages.oldest(|entry| !entry.spot.is_nowhere()).map(|entry| entry.submitted)
    }

    pub(super) fn demand(&self, lanes: usize) -> Demand {
        self.lines.lock().demand(lanes)
    }
}
