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
    lease::MemoryLease,
    queue::{Item, Verdict},
    retention::STOPPED,
    tally::KindTally,
};

impl MemoryBroker {
    pub(super) fn claim_at(self: &Arc<Self>, claimant: Claimant<'_>, now: Instant) -> Option<Claim> {
        let tally = self.tally(claimant.kind)?;
        let (mut late, mut ended) = (Vec::new(), Vec::new());
        let claimed = tally.queue.take(claimant, now, |item| {
            let entry = &item.entry;
            let expires = entry.expires();
            if expires.is_some_and(|at| at <= now) {
                late.push(entry.clone());
                return Verdict::Gone;
            }
            if !self.owners.begin(entry.owner()) {
                return Verdict::SetAside;
            }
            let Some(grant) = entry.claim(claimant, item.ticket()) else {
                self.owners.did_not_begin(entry.owner());
                ended.push(entry.clone());
                return Verdict::Gone;
            };
            Verdict::Take((entry.clone(), grant, expires))
        });
        self.pass_on_news(&tally);
        for entry in &late {
            self.reject_expired(entry);
        }
        for entry in &ended {
            // It was counted as running for a moment, which another query of its owner may have met.
            self.stopped_running(entry);
        }
        let (entry, grant, expires) = claimed?;
        self.deadlines.remove(&entry, expires);
        tally.metrics.record_wait(now.saturating_duration_since(entry.submitted));
        Some(Claim {
            deadline: entry.fixed.deadline.map(|at| at.saturating_duration_since(now)),
            lane: entry.fixed.lane.clone(),
            trace: grant.trace,
            lease: Lease::Memory(MemoryLease::new(self.clone(), entry, grant.token, grant.attempts)),
        })
    }

    pub(super) fn pass_on_news(&self, tally: &KindTally) {
        if tally.queue.has_news() {
            self.arrival.notify_one();
        }
    }

    /// A query no longer runs: another one of its owner may, of whatever kind.
    pub(super) fn stopped_running(&self, entry: &Entry) {
        let Some(owner) = entry.owner().filter(|_| self.owners.limits_running()) else { return };
        let kinds: Vec<_> = self.kinds.read().values().cloned().collect();
        let back = kinds.iter().filter(|tally| tally.queue.bring_back(owner)).count();
        if back > 0 {
            self.arrival.notify_one();
        }
    }

    /// A query that a worker had waits again, at its old place in the line.
    pub(super) fn waits_again(&self, entry: &Arc<Entry>) {
        entry.fixed.tally.queue.put_back(Item::new(entry.ticket(), entry.clone()));
        self.watch_deadline(entry);
        if self.closed.load(SeqCst) {
            // Nobody will claim it any more.
            self.reject_entry(entry, RejectReason::Shutdown, STOPPED);
        }
        self.arrival.notify_one();
    }

    /// A query waits out its backoff.
    pub(super) fn retry_at(&self, entry: &Arc<Entry>, at: Instant) {
        if at <= Instant::now() {
            self.requeue_due(entry, at);
        } else {
            self.deadlines.add(entry, at);
        }
    }

    pub(super) fn requeue_due(&self, entry: &Arc<Entry>, now: Instant) {
        if entry.requeue_due(now) {
            self.waits_again(entry);
        }
    }
}
