//! Brings waiting queries and ready workers together.

use std::sync::{Arc, atomic::AtomicUsize};

use tracing::warn;

use crate::{
    broker::{Claim, ClaimScope, Claimant},
    config::KindConfig,
    model::{DeathCause, QueryId, RejectReason},
    worker::{PoolWorker, StopMode},
};

use super::{
    RequestError,
    admission::Admission,
    affinity::{has_affinity, is_strict, lane_key},
    context::PoolContext,
    kinds::PoolKind,
    ready_workers::Reservation,
};

/// Gives queries to workers. It has no task of its own: a dispatch runs in the task that submits a query, or in that of a
/// worker which becomes ready.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) context: Arc<PoolContext>,
    pub(super) admission: Arc<Admission>,
    /// Running queries that the stop of the server ended.
    pub(super) cut_short: AtomicUsize,
}

impl Dispatcher {
    /// Starts waiting queries of a kind while it has ready workers. Called wherever a query begins to wait or a worker
    /// becomes ready.
    pub(super) async fn dispatch(&self, kind: &PoolKind) {
        while self.context.broker.open_count(&kind.name) > 0 {
            let Some(reservation) = kind.ready.reserve_next(kind.config().balance) else {
                self.context.wake_supervisor();
                return;
            };
            if !self.hand_over(kind, reservation, ClaimScope::Open).await {
                return;
            }
        }
    }

    /// Gives this worker its next query, if it is free and one waits that it may have.
    pub(super) async fn dispatch_to(&self, kind: &PoolKind, worker: &Arc<PoolWorker>) {
        if let Some(reservation) = kind.ready.reserve(worker, kind.config().balance) {
            self.hand_over(kind, reservation, scope_of(worker)).await;
        }
    }

    /// Gives all ready workers the queries that wait for them.
    pub(super) async fn dispatch_all(&self) {
        let PoolContext { broker, kinds, registry, .. } = &*self.context;
        for kind in kinds.all() {
            if !kind.ready.is_empty() {
                self.dispatch(&kind).await;
            }
            if !self.may_have_held_queries(&kind, broker.open_count(&kind.name)) {
                continue;
            }
            for worker in registry.all_of_kind(kind.slot) {
                if worker.state().can_take_query() && broker.has_query_for(&kind.name, worker.id) {
                    self.dispatch_to(&kind, &worker).await;
                }
            }
        }
    }

    /// Dispatches a query that was just submitted: to the worker that serves its lane, or to any ready one.
    pub(super) async fn dispatch_new(&self, kind: &PoolKind, lane: Option<&str>) {
        if let Some(worker) = lane.and_then(|lane| self.worker_for_lane(kind, lane)) {
            self.dispatch_to(kind, &worker).await;
        }
        self.dispatch(kind).await;
    }

    /// Claims a query for a reserved worker and starts it there. False if none was left to claim.
    ///
    /// The worker is marked busy before the claim, so a claimed query never waits for a worker. If the claim comes back
    /// empty, a query that came meanwhile may have found no ready worker: then the supervisor looks again. If the worker
    /// stops between reservation and start, the query returns to the queue unseen.
    async fn hand_over(&self, kind: &PoolKind, reservation: Reservation, scope: ClaimScope) -> bool {
        let PoolContext { broker, .. } = &*self.context;
        let worker = reservation.worker.clone();
        let config = kind.config();
        if config.keyed && !worker.kind.keyed {
            // It was started before the kind was keyed and has served all keys, so it cannot be bound to one.
            worker.request_stop(DeathCause::Reloaded, StopMode::WhenDone);
            self.context.wake_supervisor();
            return true;
        }
        let takes_lane = is_strict(&config);
        let notify = Some(worker.notify());
        let claimed = broker.claim(Claimant { kind: &kind.name, worker: worker.id, scope, takes_lane, notify }).await;
        let claim = claimed.unwrap_or_else(|error| {
            warn!(%error, "cannot claim a query");
            None
        });
        let Some(claim) = claim else {
            drop(reservation);
            if broker.waiting_count(&kind.name) > 0 {
                self.context.wake_supervisor();
            }
            return false;
        };
        self.assign_lane(kind, &config, &claim, &worker);
        let started = worker.start_query(claim, reservation.now);
        // In both cases the worker is not free: it has its query, or it is stopping.
        reservation.mark_used();
        if let Err(lease) = started {
            lease.release().await;
        } else if worker.has_reached_max_queries() {
            // Its replacement should be ready when this query ends.
            self.context.wake_supervisor();
        }
        true
    }

    /// Ties the lane of a claimed query to its worker, so that the next query of the lane reaches the same one.
    fn assign_lane(&self, kind: &PoolKind, config: &KindConfig, claim: &Claim, worker: &Arc<PoolWorker>) {
        let Some(lane) = &claim.lane else { return };
        let broker = &self.context.broker;
        match lane_key(lane) {
            // A reload since the claim has made the kind not strict.
            _ if is_strict(config) && !kind.is_strict() => broker.release_lanes(&kind.name, worker.id, Some(lane)),
            // A worker is bound to a key only while it holds the key's lane.
            Some(key) if config.keyed && worker.key().is_none() && broker.hold_lane(&kind.name, lane, worker.id) => {
                worker.bind(key.into());
            }
            // In a keyed kind sessions are found by the key of their worker.
            None if config.keyed => broker.release_lanes(&kind.name, worker.id, Some(lane)),
            _ => {}
        }
        if has_affinity(config) {
            self.remember_lane(kind, lane, worker);
        }
    }

    /// Caches the worker of a lane. A lane that drops out of the cache is released.
    pub(super) fn remember_lane(&self, kind: &PoolKind, lane: &Arc<str>, worker: &Arc<PoolWorker>) {
        if let Some((dropped, last)) = kind.affinity.insert(lane, worker)
            && last.key().is_none()
        {
            self.context.broker.release_lanes(&kind.name, last.id, Some(&dropped));
        }
    }

    /// The worker that queries of a lane must, or should, reach. One that dropped out of the cache may still hold the lane.
    pub(super) fn worker_for_lane(&self, kind: &PoolKind, lane: &str) -> Option<Arc<PoolWorker>> {
        let config = kind.config();
        if !has_affinity(&config) {
            return None;
        }
        let cached = kind.affinity.get(lane);
        if cached.is_some() || !is_strict(&config) {
            return cached;
        }
        self.context.registry.get(self.context.broker.lane_holder(&kind.name, lane)?)
    }

    /// True if a query may wait in a lane that a worker holds. A kind that is not strict has such queries only for a
    /// moment after a reload.
    pub(super) fn may_have_held_queries(&self, kind: &PoolKind, open: usize) -> bool {
        kind.is_strict() || self.context.broker.waiting_count(&kind.name) > open
    }

    /// Reserves a worker for a new query that does not want to wait, before the query is accepted: a refused one leaves
    /// no trace and may come again under the same id. A query that exists already needs no worker.
    pub(super) async fn reserve_for(
        &self,
        kind: &PoolKind,
        lane: Option<&str>,
        id: &QueryId,
    ) -> Result<Option<Reservation>, RequestError> {
        if self.context.broker.get(id).await.is_ok() {
            return Ok(None);
        }
        let balance = kind.config().balance;
        // A drained worker is passed over, unless it is bound to the query's key.
        let serves = |worker: &Arc<PoolWorker>| worker.key().is_some() || !worker.is_drained();
        let known = lane.and_then(|lane| self.worker_for_lane(kind, lane)).filter(serves);
        let reserved = known.as_ref().and_then(|worker| kind.ready.reserve(worker, balance));
        let must_be_known = known.is_some() && kind.is_strict();
        let reserved = reserved.or_else(|| if must_be_known { None } else { kind.ready.reserve_next(balance) });
        if reserved.is_none() {
            self.context.wake_supervisor();
            return Err(RequestError::Busy { kind: kind.name.clone() });
        }
        Ok(reserved)
    }

    /// Starts a query on the worker that was reserved for it. If the worker got an earlier query instead, this one is
    /// rejected as busy.
    pub(super) async fn start_reserved(
        &self,
        kind: &PoolKind,
        reservation: Reservation,
        id: &QueryId,
    ) -> Result<(), RequestError> {
        let scope = scope_of(&reservation.worker);
        self.hand_over(kind, reservation, scope).await;
        let busy = RequestError::Busy { kind: kind.name.clone() };
        let rejected = self.context.broker.reject(id, RejectReason::Busy, &busy.to_string()).await;
        if rejected { Err(busy) } else { Ok(()) }
    }
}

/// A worker that is bound to a key takes only the queries of that key's lane.
fn scope_of(worker: &PoolWorker) -> ClaimScope {
    if worker.key().is_some() { ClaimScope::Held } else { ClaimScope::Open }
}
