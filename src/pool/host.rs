//! The pool as the host of its workers: it gives ready workers their next query, and ends the attempts they conclude.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use async_trait::async_trait;
use tracing::{debug, warn};

use crate::{
    broker::{Ending, Lease, Output},
    config::Config,
    model::{DeathCause, FailureReason, Outcome},
    state::PoolLifecycle,
    worker::{Conclusion, Host, PoolWorker, StopMode},
};

use super::{
    affinity::{has_affinity, is_strict, session_lane},
    context::PoolContext,
    dispatcher::Dispatcher,
    kinds::PoolKind,
    recovery::{self, RecoveryRules},
};

#[async_trait]
impl Host for Dispatcher {
    async fn ready(&self, worker: &Arc<PoolWorker>) {
        let PoolContext { broker, kinds, .. } = &*self.context;
        let kind = kinds.get(worker.slot);
        if worker.has_served() {
            kind.record_recovery(worker.created);
        } else {
            kind.record_start();
            self.context.update_capabilities(&kind);
        }
        // The supervisor waits for this while the pool starts or drains, while a kind is being removed, and while a
        // worker is being replaced.
        if !worker.has_served() || kind.is_removed() || self.admission.lifecycle() != PoolLifecycle::Ready {
            self.context.wake_supervisor();
        }
        if worker.is_drained() && worker.key().is_none() {
            // Sessions that it has come to hold since the drain go to other workers too.
            broker.release_lanes(&kind.name, worker.id, None);
        }
        if self.yields(&kind, worker) {
            return;
        }
        kind.ready.enqueue(worker, kind.config().balance);
        let open = broker.open_count(&kind.name);
        let own = self.may_have_held_queries(&kind, open) && broker.has_query_for(&kind.name, worker.id);
        if own {
            self.dispatch_to(&kind, worker).await;
        }
        if own || open > 0 {
            self.dispatch(&kind).await;
        }
    }

    fn session(&self, worker: &Arc<PoolWorker>, session_id: &str) {
        let kind = self.context.kinds.get(worker.slot);
        let config = kind.config();
        if !has_affinity(&config) {
            return;
        }
        let lane = session_lane(session_id);
        // A worker that is bound to a key is found by the key; others hold the session's lane.
        if is_strict(&config) && !config.keyed && worker.key().is_none() && !worker.is_drained() {
            // Another worker may hold it already; then the session stays there.
            let _ = self.context.broker.hold_lane(&kind.name, &lane, worker.id);
        }
        self.remember_lane(&kind, &lane, worker);
    }

    async fn conclude(&self, worker: &Arc<PoolWorker>, lease: Lease, outputs: Vec<Output>, conclusion: Conclusion) {
        self.track_failures(worker, &conclusion);
        let config = self.context.config();
        let Some(ending) = recovery::decide(conclusion, lease.attempts(), rules(&config, &lease)) else {
            warn!("lease lost; its output was dropped");
            return;
        };
        self.log_ending(&ending);
        if let Err(error) = lease.finish(outputs, ending).await {
            warn!(%error, "the ending of an attempt was dropped");
        }
    }
}

impl Dispatcher {
    /// Stops a worker that has ended its query if its kind was asked to make room for another one. True if it stops.
    fn yields(&self, kind: &PoolKind, worker: &PoolWorker) -> bool {
        // A worker that is not bound yet can serve the waiting key itself; a drained one was told to stay.
        if (worker.key().is_none() && kind.config().keyed) || worker.is_drained() {
            return false;
        }
        let Some(reason) = kind.take_yield_request() else { return false };
        let stops = worker.stop_if_spare(DeathCause::Evicted);
        if stops {
            self.context.record_eviction(kind, worker, reason);
        }
        stops
    }

    /// Replaces a worker that fails query after query while others of its kind succeed.
    fn track_failures(&self, worker: &Arc<PoolWorker>, conclusion: &Conclusion) {
        match conclusion {
            Conclusion::Complete { .. } => worker.record_success(),
            Conclusion::Reported(_) => {
                let (failures, since) = worker.record_failure();
                let kind = &worker.kind;
                let is_limited = kind.max_failures > 0;
                if is_limited && failures >= kind.max_failures && self.has_succeeding_sibling(worker, since) {
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

    fn has_succeeding_sibling(&self, worker: &PoolWorker, since: Instant) -> bool {
        let siblings = self.context.registry.all_of_kind(worker.slot);
        siblings.iter().any(|sibling| sibling.id != worker.id && sibling.has_succeeded_since(since))
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
                // A death was logged before, with its certificate.
                FailureReason::WorkerDied | FailureReason::Reported => {
                    debug!(dead_letter, "attempt failed: {}", failure.message);
                }
                FailureReason::TimedOut | FailureReason::Overflow => warn!("attempt failed: {}", failure.message),
            },
            Ending::Over { outcome, .. } => debug!(state = %outcome.state(), "attempt over"),
        }
    }
}

/// The rules for a query: its own, those of its type, or the pool's.
fn rules<'a>(config: &'a Config, lease: &Lease) -> RecoveryRules<'a> {
    let spec = lease.spec();
    RecoveryRules {
        recovery: spec.recovery().unwrap_or_else(|| config.recovery.for_type(spec.query_type.as_deref())),
        retry: &config.retry,
        jitter: fastrand::f64(),
    }
}
