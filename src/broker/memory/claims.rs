//! Hands queries to workers, and lets those that come back wait again.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Instant,
};

use crate::{
    broker::{Claim, Claimant, Lease},
    model::RejectReason,
};

use super::{
    MemoryBroker,
    entry::Entry,
    kind_state::KindState,
    lease::MemoryLease,
    queue::{ClaimDecision, QueuedQuery},
    retention::STOPPED,
};

impl MemoryBroker {
    pub(super) fn claim_at(self: &Arc<Self>, claimant: Claimant<'_>, now: Instant) -> Option<Claim> {
        let kind_state = self.kind_state(claimant.kind)?;
        let (mut late, mut ended) = (Vec::new(), Vec::new());
        let claimed = kind_state.queue.take(claimant, now, |item| {
            let entry = &item.entry;
            let expires = entry.expires();
            if expires.is_some_and(|at| at <= now) {
                late.push(entry.clone());
                return ClaimDecision::Skip;
            }
            if !self.owners.try_start(entry.owner()) {
                return ClaimDecision::Throttle;
            }
            let Some(grant) = entry.claim(claimant, item.rank_tag()) else {
                self.owners.undo_start(entry.owner());
                ended.push(entry.clone());
                return ClaimDecision::Skip;
            };
            ClaimDecision::Take((entry.clone(), grant, expires))
        });
        self.wake_if_needed(&kind_state);
        for entry in &late {
            self.reject_expired(entry);
        }
        for entry in &ended {
            // It was counted as running for a moment, which may have throttled another query of its owner.
            self.on_stopped_running(entry);
        }
        let (entry, grant, expires) = claimed?;
        self.deadlines.remove(&entry, expires);
        kind_state.metrics.record_wait(now.saturating_duration_since(entry.submitted));
        Some(Claim {
            deadline: entry.meta.deadline.map(|at| at.saturating_duration_since(now)),
            lane: entry.meta.lane.clone(),
            trace: grant.trace,
            lease: Lease::Memory(MemoryLease::new(self.clone(), entry, grant.token, grant.attempts)),
        })
    }

    pub(super) fn wake_if_needed(&self, kind_state: &KindState) {
        if kind_state.queue.take_wake_request() {
            self.arrival.notify_one();
        }
    }

    /// Lets another query of the same owner run, of any kind.
    pub(super) fn on_stopped_running(&self, entry: &Entry) {
        let Some(owner) = entry.owner().filter(|_| self.owners.limits_running()) else { return };
        let kinds: Vec<_> = self.kinds.read().values().cloned().collect();
        let back = kinds.iter().filter(|kind_state| kind_state.queue.resume_owner(owner)).count();
        if back > 0 {
            self.arrival.notify_one();
        }
    }

    /// Queues a query that a worker had at its old place.
    pub(super) fn wait_again(&self, entry: &Arc<Entry>) {
        entry.meta.kind_state.queue.reinsert(QueuedQuery::new(entry.rank_tag(), entry.clone()));
        self.watch_deadline(entry);
        if self.closed.load(SeqCst) {
            // Nothing is claimed any more.
            self.reject_entry(entry, RejectReason::Shutdown, STOPPED);
        }
        self.arrival.notify_one();
    }

    /// Queues a query when its backoff is over.
    pub(super) fn retry_at(&self, entry: &Arc<Entry>, at: Instant) {
        if at <= Instant::now() {
            self.requeue_due(entry, at);
        } else {
            self.deadlines.add(entry, at);
        }
    }

    pub(super) fn requeue_due(&self, entry: &Arc<Entry>, now: Instant) {
        if entry.requeue_due(now) {
            self.wait_again(entry);
        }
    }
}
