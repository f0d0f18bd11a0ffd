//! Ends queries whose time is up, and deletes ended ones when their retention is over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    broker::CancelOutcome,
    model::{Outcome, RejectReason},
    sync::Mutex,
};

use super::{MemoryBroker, entry::Entry};

/// Upper bound of the time between two rounds of [`MemoryBroker::expire`].
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

pub(super) const STOPPED: &str = "the server stopped before a worker was free";

/// Times at which queries are due: their wait ends, their retry begins, or nobody reads them any more.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// Weak: a query that ended early is not kept alive by its deadline.
    entries: Mutex<BTreeMap<(Instant, u64), Weak<Entry>>>,
    added: Notify,
}

impl Deadlines {
    pub(super) fn add(&self, entry: &Arc<Entry>, at: Instant) {
        self.entries.lock().insert((at, entry.meta.number), Arc::downgrade(entry));
        self.added.notify_one();
    }

    pub(super) fn remove(&self, entry: &Entry, at: Option<Instant>) {
        if let Some(at) = at {
            self.entries.lock().remove(&(at, entry.meta.number));
        }
    }

    pub(super) async fn wait_for_new(&self) {
        self.added.notified().await;
    }

    /// Takes out the queries that are due, and gives the time of the next one.
    fn take_due(&self, now: Instant) -> (Vec<Arc<Entry>>, Option<Instant>) {
        let mut due = Vec::new();
        let mut entries = self.entries.lock();
        while let Some(first) = entries.first_entry() {
            if first.key().0 > now {
                break;
            }
            due.extend(first.remove().upgrade());
        }
        (due, entries.first_key_value().map(|((at, _), _)| *at))
    }
}

impl MemoryBroker {
    pub(super) fn watch_deadline(&self, entry: &Arc<Entry>) {
        if let Some(at) = entry.expires() {
            self.deadlines.add(entry, at);
        }
    }

    /// Begins the retention of a query that has just ended.
    pub(super) fn retire(&self, entry: Arc<Entry>, now: Instant) {
        self.deadlines.remove(&entry, entry.expires());
        let evicted = {
            let mut index = self.index.lock();
            index.retain(now, entry);
            index.evict(now, &self.limits)
        };
        Self::uncount(&evicted);
    }

    /// The same for one that ended while it waited.
    fn retire_waiting(&self, entry: Arc<Entry>) {
        self.leave_queue(&entry);
        self.retire(entry, Instant::now());
    }

    pub(super) fn leave_queue(&self, entry: &Entry) {
        if entry.meta.kind_state.queue.remove(entry) {
            self.arrival.notify_one();
        }
    }

    pub(super) fn uncount(evicted: &[Arc<Entry>]) {
        for entry in evicted {
            entry.meta.kind_state.on_leave(entry.state(), entry.payload_bytes());
        }
    }

    pub(super) fn reject_expired(&self, entry: &Arc<Entry>) {
        let message = format!(
            "no worker of kind {} was free within {:.1} s, and the query may wait no longer",
            entry.meta.spec.kind,
            entry.submitted.elapsed().as_secs_f64()
        );
        self.reject_entry(entry, RejectReason::Deadline, &message);
    }

    /// Ends a query that still waits. False if it does not.
    pub(super) fn reject_entry(&self, entry: &Arc<Entry>, reason: RejectReason, message: &str) -> bool {
        let rejected = entry.end_waiting(Outcome::Rejected { reason, message: message.into() });
        if rejected {
            self.retire_waiting(entry.clone());
        }
        rejected
    }

    pub(super) fn cancel_entry(&self, entry: Arc<Entry>, reason: &str) -> CancelOutcome {
        let found = entry.cancel(reason);
        if found == CancelOutcome::Queued {
            self.retire_waiting(entry);
        }
        found
    }

    /// Does what is due, and returns the time at which it wants to be called again.
    pub(super) fn expire(&self, now: Instant) -> Instant {
        let (due, next) = self.deadlines.take_due(now);
        for entry in due {
            if entry.expires().is_some_and(|at| at <= now) {
                self.reject_expired(&entry);
            }
            self.requeue_due(&entry, now);
            let abandoned = entry.cancel_if_abandoned(now, "nobody was reading its events any more");
            if abandoned == Some(CancelOutcome::Queued) {
                self.retire_waiting(entry);
            }
        }
        let evicted = self.index.lock().evict(now, &self.limits);
        Self::uncount(&evicted);
        let regular = now + EXPIRE_INTERVAL;
        next.map_or(regular, |at| at.min(regular))
    }
}
