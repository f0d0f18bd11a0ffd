//! Brings waiting queries and ready workers together, and carries what workers conclude back to the broker.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use async_trait::async_trait;
use tracing::{debug, warn};

use crate::{
    broker::{Claimant, Ending, Lease, Output},
    model::{DeathCause, FailureReason, Outcome},
    state::PoolLifecycle,
    worker::{Conclusion, Host, PoolWorker, StopMode},
};

use super::{
    Inner,
    recovery::{self, Rules},
};

impl Inner {
    /// Starts waiting queries of a kind for as long as there are ready workers. Whoever makes a query wait or a
    /// worker ready calls this; no task stands in between.
    pub(super) async fn dispatch(&self, kind: usize) {
        let name = &self.kinds[kind].config.name;
        while self.broker.waiting(name) > 0 {
            let Some(reservation) = self.data.reserve_ready_worker(kind) else {
                self.nudge.notify_one();
                return;
            };
            let worker = reservation.worker.clone();
            let claimed = self.broker.claim(Claimant { kind: name, worker: worker.id }).await;
            let Some(claim) = claimed.unwrap_or_else(|error| {
                warn!(%error, "cannot fetch a query");
                None
            }) else {
                // Someone else was faster. A query that arrived while the worker was reserved has found no ready
                // worker, so the supervisor looks again once it is given back.
                drop(reservation);
                self.nudge.notify_one();
                return;
            };
            let started = worker.start_task(claim);
            // Either way the worker is not free: it has its query, or it is on its way out.
            reservation.used();
            if let Err(claim) = started {
                // The worker was stopped or died in between. The query goes back; nobody has seen it.
                claim.lease.release().await;
            }
        }
    }

    /// The rules for a query: its own, those of its type, or the pool's.
    fn rules(&self, lease: &dyn Lease) -> Rules<'_> {
        let spec = lease.spec();
        Rules {
            recovery: spec.recovery.unwrap_or_else(|| self.config.recovery.for_type(spec.query_type.as_deref())),
            retry: &self.config.retry,
            jitter: fastrand::f64(),
        }
    }

    /// A worker that fails query after query while its siblings succeed swallows work: it is replaced.
    fn judge(&self, worker: &Arc<PoolWorker>, conclusion: &Conclusion) {
        match conclusion {
            Conclusion::Complete { .. } => worker.succeeded(),
            Conclusion::Reported(_) => {
                let (failures, since) = worker.failed();
                let kind = &worker.kind;
                let limit = kind.max_failures.map_or(u32::MAX, std::num::NonZeroU32::get);
                if failures >= limit && self.a_sibling_succeeded(worker, since) {
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
        let siblings = self.data.all_of_kind(&worker.kind.name);
        siblings.iter().any(|sibling| sibling.id != worker.id && sibling.succeeded_since(since))
    }
}

#[async_trait]
impl Host for Inner {
    async fn ready(&self, worker: &Arc<PoolWorker>) {
        let kind = self.kind_of(worker);
        if worker.has_served() {
            self.kinds[kind].recovered(worker.created);
        } else {
            self.kinds[kind].probe_is_ready();
        }
        // While the pool starts or drains, the supervisor waits for just this.
        if self.lifecycle.get() != PoolLifecycle::Ready {
            self.nudge.notify_one();
        }
        self.data.enqueue_ready(kind, worker);
        self.dispatch(kind).await;
    }

    async fn conclude(
        &self,
        worker: &Arc<PoolWorker>,
        lease: Box<dyn Lease>,
        outputs: Vec<Output>,
        conclusion: Conclusion,
    ) {
        self.judge(worker, &conclusion);
        let Some(ending) = recovery::decide(conclusion, lease.tries(), self.rules(&*lease)) else {
            debug!("lease lost; its output was dropped");
            return;
        };
        self.log_ending(&ending);
        if lease.finish(outputs, ending).await.is_err() {
            debug!("lease lost; its ending was dropped");
        }
    }
}

impl Inner {
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
                FailureReason::WorkerDied | FailureReason::Reported => debug!(dead_letter, "query failed"),
                FailureReason::TimedOut | FailureReason::Overflow => warn!("query failed: {}", failure.message),
            },
            Ending::Over { outcome, .. } => debug!(state = %outcome.state(), "query over"),
        }
    }
}
