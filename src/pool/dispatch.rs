//! Brings waiting queries and ready workers together, and carries what workers conclude back to the broker.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use async_trait::async_trait;
use tracing::{debug, info, warn};

use crate::{
    broker::{Claim, ClaimScope, Claimant, Ending, Lease, Output},
    config::{Config, KindConfig},
    model::{DeathCause, FailureReason, Outcome},
    state::PoolLifecycle,
    worker::{Conclusion, Host, PoolWorker, StopMode},
};

use super::{
    Inner,
    events::PoolEventBody,
    kinds::{Kind, has_affinity, is_strict, key_of, session_lane},
    recovery::{self, Rules},
    worker_data::Reservation,
};

impl Inner {
    /// Starts waiting queries of a kind for as long as there are ready workers. Whoever makes a query wait or a
    /// worker ready calls this; no task stands in between.
    pub(super) async fn dispatch(&self, kind: &Kind) {
        while self.broker.open_count(&kind.name) > 0 {
            let Some(reservation) = self.data.reserve_ready_worker(kind.slot, kind.config().balance) else {
                self.nudge.notify_one();
                return;
            };
            if !self.hand_over(kind, reservation, ClaimScope::Open).await {
                return;
            }
        }
    }

    /// Gives just this worker its next query, if it is free and one waits that it may have.
    pub(super) async fn dispatch_to(&self, kind: &Kind, worker: &Arc<PoolWorker>) {
        let Some(reservation) = self.data.reserve_worker(worker, kind.config().balance) else { return };
        let scope = if worker.key().is_some() { ClaimScope::Held } else { ClaimScope::Open };
        self.hand_over(kind, reservation, scope).await;
    }

    /// Claims a query for a reserved worker and starts it there. False if there was none.
    pub(super) async fn hand_over(&self, kind: &Kind, reservation: Reservation, scope: ClaimScope) -> bool {
        let worker = reservation.worker.clone();
        let config = kind.config();
        if config.keyed && !worker.kind.keyed {
            // It has served all keys, and so can be no key's own. Another is started in its place.
            worker.request_stop(DeathCause::Reloaded, StopMode::WhenDone);
            self.nudge.notify_one();
            return true;
        }
        let takes_lane = is_strict(&config);
        let notify = Some(worker.notify());
        let claimed =
            self.broker.claim(Claimant { kind: &kind.name, worker: worker.id, scope, takes_lane, notify }).await;
        let Some(claim) = claimed.unwrap_or_else(|error| {
            warn!(%error, "cannot fetch a query");
            None
        }) else {
            // Someone else was faster, as happens all the time where both a query and a worker look for each other.
            drop(reservation);
            if self.broker.waiting_count(&kind.name) > 0 {
                // It may have come while the worker was reserved and have found none, so the supervisor looks again.
                self.nudge.notify_one();
            }
            return false;
        };
        self.remember_lane(kind, &config, &claim, &worker);
        let started = worker.start_query(claim, reservation.now);
        // Either way the worker is not free: it has its query, or it is on its way out.
        reservation.used();
        if let Err(claim) = started {
            // The worker was stopped or died in between. The query goes back; nobody has seen it.
            claim.lease.release().await;
        } else if worker.has_reached_max_queries() {
            // The replacement is to be there when this query ends.
            self.nudge.notify_one();
        }
        true
    }

    /// Binds a worker to a key, never without holding the key's lane.
    fn bind(&self, kind: &Kind, worker: &PoolWorker, lane: &Arc<str>, key: &str) {
        if worker.key().is_none() && self.broker.hold_lane(&kind.name, lane, worker.id) {
            worker.bind(key.into());
        }
    }

    /// The next query of the same key or session is to find this worker.
    fn remember_lane(&self, kind: &Kind, config: &KindConfig, claim: &Claim, worker: &Arc<PoolWorker>) {
        let Some(lane) = &claim.lane else { return };
        match key_of(lane) {
            // A reload may have come in between.
            _ if is_strict(config) && !kind.is_strict() => self.broker.release_lanes(&kind.name, worker.id, Some(lane)),
            Some(key) if config.keyed => self.bind(kind, worker, lane, key),
            // A keyed worker serves no session for good.
            None if config.keyed => self.broker.release_lanes(&kind.name, worker.id, Some(lane)),
            _ => {}
        }
        if has_affinity(config) {
            self.remember(kind, lane, worker);
        }
    }

    pub(super) fn remember(&self, kind: &Kind, lane: &Arc<str>, worker: &Arc<PoolWorker>) {
        let forgotten = kind.whereabouts.remember(lane, worker);
        if let Some((lane, last)) = forgotten
            && last.key().is_none()
        {
            self.broker.release_lanes(&kind.name, last.id, Some(&lane));
        }
    }

    /// The rules for a query: its own, those of its type, or the pool's.
    fn rules<'a>(config: &'a Config, lease: &Lease) -> Rules<'a> {
        let spec = lease.spec();
        Rules {
            recovery: spec.recovery().unwrap_or_else(|| config.recovery.for_type(spec.query_type.as_deref())),
            retry: &config.retry,
            jitter: fastrand::f64(),
        }
    }

    /// A worker that fails query after query while its siblings succeed swallows work: it is replaced.
    fn judge(&self, worker: &Arc<PoolWorker>, conclusion: &Conclusion) {
        match conclusion {
            Conclusion::Complete { .. } => worker.record_success(),
            Conclusion::Reported(_) => {
                let (failures, since) = worker.record_failure();
                let kind = &worker.kind;
                let is_limited = kind.max_failures > 0;
                if is_limited && failures >= kind.max_failures && self.a_sibling_succeeded(worker, since) {
                    warn!(
                        worker = worker.id.0,
                        kind = %kind.name,
                        failures,
                        "replacing a worker that fails its queries while others of its kind do not"
                    );
                    worker.request_stop(DeathCause::Evicted, StopMode::WhenDone);
                }
            }
            _ => {}
        }
    }

    fn a_sibling_succeeded(&self, worker: &PoolWorker, since: std::time::Instant) -> bool {
        let siblings = self.data.all_of_kind(worker.slot);
        siblings.iter().any(|sibling| sibling.id != worker.id && sibling.has_succeeded_since(since))
    }
}

#[async_trait]
impl Host for Inner {
    async fn ready(&self, worker: &Arc<PoolWorker>) {
        let kind = self.kinds.get(worker.slot);
        if worker.has_served() {
            kind.recovered(worker.created);
        } else {
            kind.probe_is_ready();
            self.learn(&kind);
        }
        // The supervisor waits for just this while the pool starts or drains, while a kind goes, and where one worker is to
        // take the place of another.
        if !worker.has_served() || kind.is_removed() || self.lifecycle.get() != PoolLifecycle::Ready {
            self.nudge.notify_one();
        }
        if worker.is_drained() && worker.key().is_none() {
            // What it has come to hold meanwhile goes to others too.
            self.broker.release_lanes(&kind.name, worker.id, None);
        }
        if self.gives_way(&kind, worker) {
            return;
        }
        self.data.enqueue_ready(worker, kind.config().balance);
        let open = self.broker.open_count(&kind.name);
        let own = self.may_be_held(&kind, open) && self.broker.has_query_for(&kind.name, worker.id);
        if own {
            self.dispatch_to(&kind, worker).await;
        }
        if own || open > 0 {
            self.dispatch(&kind).await;
        }
    }

    fn session(&self, worker: &Arc<PoolWorker>, session_id: &str) {
        let kind = self.kinds.get(worker.slot);
        let config = kind.config();
        if !has_affinity(&config) {
            return;
        }
        let lane = session_lane(session_id);
        // A worker that is bound to a key is found by it; others hold the session themselves.
        if is_strict(&config) && !config.keyed && worker.key().is_none() && !worker.is_drained() {
            self.broker.hold_lane(&kind.name, &lane, worker.id);
        }
        self.remember(&kind, &lane, worker);
    }

    async fn conclude(&self, worker: &Arc<PoolWorker>, lease: Lease, outputs: Vec<Output>, conclusion: Conclusion) {
        self.judge(worker, &conclusion);
        let config = self.config();
        let Some(ending) = recovery::decide(conclusion, lease.attempts(), Self::rules(&config, &lease)) else {
            warn!("lease lost; its output was dropped");
            return;
        };
        self.log_ending(&ending);
        if let Err(error) = lease.finish(outputs, ending).await {
            warn!(%error, "the ending of an attempt was dropped");
        }
    }
}

impl Inner {
    /// Whether a query may wait in a lane that a worker holds. A kind that is not strict has none but in the moments after
    /// it ceased to be.
    pub(super) fn may_be_held(&self, kind: &Kind, open: usize) -> bool {
        kind.is_strict() || self.broker.waiting_count(&kind.name) > open
    }

    /// What all live workers of a kind can do, now that one more has told.
    pub(super) fn learn(&self, kind: &Kind) {
        kind.learn(|| {
            let workers = self.data.all_of_kind(kind.slot);
            let up = workers.iter().filter(|worker| worker.state().is_healthy());
            up.map(|worker| worker.snapshot().ready_info.capabilities).collect()
        });
    }

    /// A worker that is done with its query makes room for one that has waited long, though more may wait for it.
    fn gives_way(&self, kind: &Kind, worker: &PoolWorker) -> bool {
        // One that is not bound to a key yet can serve the key that waits itself.
        if worker.key().is_none() && kind.config().keyed {
            return false;
        }
        // Whoever drained it wants it to stay.
        if worker.is_drained() {
            return false;
        }
        let Some(reason) = kind.asked_to_give_way() else { return false };
        if !worker.stop_if_spare(DeathCause::Evicted) {
            return false;
        }
        self.evicted(kind, worker, reason);
        true
    }

    /// Tells of an eviction.
    pub(super) fn evicted(&self, kind: &Kind, worker: &PoolWorker, reason: String) {
        let eviction = self.config().pool.eviction;
        let strategy = eviction.name();
        info!(worker = worker.id.0, kind = %kind.name, strategy, reason, "worker evicted");
        kind.metrics.record_eviction(eviction);
        self.events.emit(Some(&kind.name), || PoolEventBody::Evicted { worker: worker.id, strategy, reason });
        self.nudge.notify_one();
    }

    fn log_ending(&self, ending: &Ending) {
        match ending {
            Ending::Retry(retrying) => {
                warn!(delay = ?retrying.delay, "attempt failed, trying again: {}", retrying.failure.message);
            }
            Ending::Over { outcome: Outcome::Error(failure), dead_letter } => match failure.reason {
                FailureReason::Shutdown => {
                    self.cut_short.fetch_add(1, Relaxed);
                }
                // A death is in the log already, with its certificate.
                FailureReason::WorkerDied | FailureReason::Reported => {
                    debug!(dead_letter, "attempt failed: {}", failure.message);
                }
                FailureReason::TimedOut | FailureReason::Overflow => warn!("attempt failed: {}", failure.message),
            },
            Ending::Over { outcome, .. } => debug!(state = %outcome.state(), "attempt over"),
        }
    }
}
