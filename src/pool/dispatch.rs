//! Brings waiting queries and ready workers together, and carries what workers conclude back to the broker.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use tracing::{debug, warn};

use crate::{
    broker::{Claimant, Lease, Output},
    model::{Certificate, DeathCause, Failure, FailureReason, Outcome},
    state::PoolLifecycle,
    worker::{Conclusion, Host, PoolWorker},
};

use super::Inner;

const CUT_SHORT: &str = "the server stopped before the query ended";

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
            let Some(claim) = self.broker.claim(Claimant { kind: name, worker: worker.id }).await else {
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
}

#[async_trait]
impl Host for Inner {
    async fn ready(&self, worker: &Arc<PoolWorker>) {
        let kind = self.kind_of(worker);
        if worker.has_served() {
            self.kinds[kind].recovered();
        }
        // While the pool starts or drains, the supervisor waits for just this.
        if self.lifecycle.get() != PoolLifecycle::Ready {
            self.nudge.notify_one();
        }
        self.data.enqueue_ready(kind, worker);
        self.dispatch(kind).await;
    }

    async fn conclude(&self, lease: Box<dyn Lease>, outputs: Vec<Output>, conclusion: Conclusion) {
        let Some(outcome) = outcome(conclusion) else {
            debug!("lease lost; its output was dropped");
            return;
        };
        if let Outcome::Error(failure) = &outcome
            && failure.reason == FailureReason::TimedOut
        {
            // A death is in the log already, with its certificate.
            warn!("query failed: {}", failure.message);
        }
        if matches!(&outcome, Outcome::Error(failure) if failure.reason == FailureReason::Shutdown) {
            self.cut_short.fetch_add(1, Relaxed);
        }
        let state = outcome.state();
        debug!(%state, "query over");
        if lease.finish(outputs, outcome).await.is_err() {
            debug!("lease lost; its outcome was dropped");
        }
    }
}

/// How a query ends by what its worker concluded. `None` if it is another's to end.
fn outcome(conclusion: Conclusion) -> Option<Outcome> {
    Some(match conclusion {
        Conclusion::Complete { result } => Outcome::Complete { result },
        Conclusion::Reported(failure) => Outcome::Error(failure),
        Conclusion::Cancelled { reason, rung } => Outcome::Cancelled { reason: (*reason).into(), rung },
        Conclusion::TimedOut { limit, rung, certificate } => {
            let message = format!(
                "the query ran longer than its timeout of {}; the worker let go {}",
                humantime::format_duration(Duration::from_millis(limit.as_millis().try_into().unwrap_or(u64::MAX))),
                rung.words()
            );
            let failure = Failure { certificate, ..Failure::new(FailureReason::TimedOut, message) };
            Outcome::Error(Box::new(failure))
        }
        Conclusion::Died(certificate) => Outcome::Error(Box::new(died(certificate))),
        Conclusion::CutShort => Outcome::Error(Box::new(Failure::new(FailureReason::Shutdown, CUT_SHORT))),
        Conclusion::LeaseLost => return None,
    })
}

fn died(certificate: Arc<Certificate>) -> Failure {
    if certificate.cause == DeathCause::Shutdown {
        return Failure::new(FailureReason::Shutdown, CUT_SHORT).with_certificate(certificate);
    }
    Failure::new(FailureReason::WorkerDied, certificate.summary()).with_certificate(certificate)
}
