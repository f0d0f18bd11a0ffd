//! The way of a query into the pool: its kind is chosen, the broker takes it, and a ready worker gets it at once.

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tracing::debug;

use crate::{
    broker::{ClaimScope, NewQuery, SubmitError, Submitted},
    metrics::RefusalReason,
    model::{QueryId, QuerySpec, RejectReason},
    state::PoolLifecycle,
    trace::{Context, QueryTrace},
    worker::PoolWorker,
};

use super::{
    Inner, Pool,
    health::is_admitting,
    kinds::{self, Kind, session_lane},
    routing::Unroutable,
    worker_data::Reservation,
};

/// A query as the client sent it, its kind not yet chosen.
#[derive(Debug)]
pub struct Request {
    pub id: Option<QueryId>,
    pub kind: Option<String>,
    pub spec: QuerySpec,
    /// What is left of the client's own deadline.
    pub deadline: Option<Duration>,
    /// Cancel it once nobody has read its events for this long.
    pub abandon_after: Option<Duration>,
    /// The trace that the call belongs to.
    pub caller: Option<Context>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Accepted {
    pub id: QueryId,
    pub kind: Arc<str>,
    pub submitted: Submitted,
}

#[derive(Debug, Error)]
pub enum RequestError {
    #[error("the server is {0} and takes no more queries")]
    NotAdmitting(PoolLifecycle),
    #[error("{0}")]
    Drained(String),
    #[error("no worker of kind {kind} is ready, and the query asked not to wait (reject_if_busy)")]
    Busy { kind: Arc<str> },
    #[error("workers of kind {kind} do not start, so its queries fail at once; {reason}")]
    CircuitOpen { kind: Arc<str>, reason: String },
    #[error(transparent)]
    Unroutable(#[from] Unroutable),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl RequestError {
    /// The word for it in metrics; `None` if it says nothing about the query.
    fn refusal(&self) -> Option<RefusalReason> {
        Some(match self {
            Self::NotAdmitting(_) | Self::Submit(SubmitError::Closed) => RefusalReason::Draining,
            Self::Drained(_) => RefusalReason::Drained,
            Self::Busy { .. } => RefusalReason::Busy,
            Self::CircuitOpen { .. } => RefusalReason::CircuitOpen,
            Self::Unroutable(_) => RefusalReason::Invalid,
            Self::Submit(SubmitError::QueueFull { .. } | SubmitError::QueueBytesFull { .. }) => {
                RefusalReason::QueueFull
            }
            Self::Submit(SubmitError::OwnerQueueFull { .. }) => RefusalReason::OwnerQueueFull,
            Self::Submit(SubmitError::Conflict { .. }) => RefusalReason::Conflict,
            Self::Submit(SubmitError::Unavailable(_)) => return None,
        })
    }
}

impl Pool {
    /// Accepts a query and gives it to a ready worker at once if there is one.
    pub async fn submit(&self, request: Request) -> Result<Accepted, RequestError> {
        let accepted = self.accept(request).await;
        if let Err(error) = &accepted {
            debug!("query refused: {error}");
            if let Some(refusal) = error.refusal() {
                self.inner.metrics.record_refusal(refusal);
            }
        }
        accepted
    }

    async fn accept(&self, request: Request) -> Result<Accepted, RequestError> {
        let inner = &self.inner;
        inner.is_open()?;
        let kind = inner.pick(request.kind.as_deref(), request.id.as_ref(), &request.spec).await?;
        let name = kind.name.clone();
        if let Some(reason) = inner.fails_fast(&kind) {
            return Err(RequestError::CircuitOpen { kind: name, reason });
        }
        let id = request.id.unwrap_or_else(QueryId::generate);
        let queue_timeout = request.spec.queue_timeout.or(kind.config().queue_timeout);
        let spec = inner.keyed(&kind, QuerySpec { kind: name.clone(), queue_timeout, ..request.spec })?;
        let lane = kinds::lane(&spec);
        let reserved = if spec.reject_if_busy { inner.reserve_now(&kind, lane.as_deref(), &id).await? } else { None };
        let trace = QueryTrace::begin(&id, &spec, request.caller);
        let submitted = inner
            .broker
            .submit(NewQuery {
                id: id.clone(),
                spec,
                lane: lane.clone(),
                deadline: request.deadline,
                abandon_after: request.abandon_after,
                trace,
            })
            .await;
        let new = submitted.as_ref().is_ok_and(|submitted| !submitted.existed);
        match reserved {
            Some(reservation) if new => inner.start_now(&kind, reservation, &id).await?,
            Some(reservation) => {
                // A query that came while the worker was reserved has found none, so the supervisor looks again.
                drop(reservation);
                inner.nudge.notify_one();
            }
            None if new => inner.place(&kind, lane.as_deref()).await,
            None => {}
        }
        let submitted = submitted?;
        debug!(query = %id, kind = &*name, existed = submitted.existed, "query accepted");
        Ok(Accepted { id, kind: name, submitted })
    }
}

impl Inner {
    /// A keyed kind must know the key. A session that one of its workers holds stands for that worker's key.
    fn keyed(&self, kind: &Kind, mut spec: QuerySpec) -> Result<QuerySpec, Unroutable> {
        if kind.config().keyed && spec.key.is_none() {
            let session = spec.session_id().map(session_lane);
            let holder = session.and_then(|lane| self.whereabouts(kind, &lane));
            let key = holder.as_ref().and_then(|worker| worker.key());
            let key = key.ok_or_else(|| Unroutable::NoKey { kind: kind.name.clone() })?;
            spec.key = Some((**key).into());
        }
        Ok(spec)
    }

    /// The worker that queries of a lane must, or should, reach: the one that served it last. One that was forgotten may
    /// still hold the lane.
    fn whereabouts(&self, kind: &Kind, lane: &str) -> Option<Arc<PoolWorker>> {
        let config = kind.config();
        if !kinds::has_affinity(&config) {
            return None;
        }
        let holder = || self.broker.lane_holder(&kind.name, lane).and_then(|holder| self.data.get(holder));
        let known = kind.whereabouts.find(lane);
        known.or_else(|| if kinds::is_strict(&config) { holder() } else { None })
    }

    /// Whether new queries are taken.
    pub(super) fn is_open(&self) -> Result<(), RequestError> {
        let lifecycle = self.lifecycle.get();
        if !is_admitting(lifecycle) {
            return Err(RequestError::NotAdmitting(lifecycle));
        }
        self.closed().map_or(Ok(()), |reason| Err(RequestError::Drained(reason)))
    }

    /// Picks the kind for a query. Of several that could serve it, one that came before under the same id has made the
    /// choice: it is the same query only if it is of the same kind.
    async fn pick(&self, name: Option<&str>, id: Option<&QueryId>, spec: &QuerySpec) -> Result<Arc<Kind>, Unroutable> {
        if spec.capabilities().is_empty()
            && (name.is_some() || spec.query_type.is_none())
            && let Some(kind) = self.kinds.only(name)
        {
            return Ok(kind);
        }
        let kinds = self.route(name, spec)?;
        if let [kind] = &kinds[..] {
            return Ok(kind.clone());
        }
        let before = match id {
            Some(id) => self.broker.get(id).await.ok(),
            None => None,
        };
        let chosen = before.and_then(|query| kinds.iter().find(|kind| kind.name == query.kind));
        Ok(chosen.cloned().unwrap_or_else(|| self.least_loaded(&kinds)))
    }

    /// Brings a query that has just arrived to the worker that knows its key or session, or to any that is ready.
    async fn place(&self, kind: &Kind, lane: Option<&str>) {
        if let Some(worker) = lane.and_then(|lane| self.whereabouts(kind, lane)) {
            self.dispatch_to(kind, &worker).await;
        }
        self.dispatch(kind).await;
    }

    /// Reserves a worker for a query that does not want to wait, before it is accepted: one that is refused leaves no
    /// trace, and may come again under the same id. A query that is here already needs none.
    async fn reserve_now(
        &self,
        kind: &Kind,
        lane: Option<&str>,
        id: &QueryId,
    ) -> Result<Option<Reservation>, RequestError> {
        if self.broker.get(id).await.is_ok() {
            return Ok(None);
        }
        let balance = kind.config().balance;
        // One that takes no queries is as good as unknown, unless the key is its own.
        let serves = |worker: &Arc<PoolWorker>| worker.key().is_some() || !worker.is_drained();
        let known = lane.and_then(|lane| self.whereabouts(kind, lane)).filter(serves);
        let reserved = known.as_ref().and_then(|worker| self.data.reserve_worker(worker, balance));
        // One that must reach its own worker has no use for another.
        let any = || {
            if known.is_some() && kind.is_strict() { None } else { self.data.reserve_ready_worker(kind.slot, balance) }
        };
        let reserved = reserved.or_else(any);
        if reserved.is_none() {
            self.nudge.notify_one();
        }
        reserved.map(Some).ok_or_else(|| RequestError::Busy { kind: kind.name.clone() })
    }

    /// Starts what waits on a worker that was reserved. If that is another query, which was faster, this one has to go.
    async fn start_now(&self, kind: &Kind, reservation: Reservation, id: &QueryId) -> Result<(), RequestError> {
        let scope = if reservation.worker.key().is_some() { ClaimScope::Held } else { ClaimScope::Open };
        self.hand_over(kind, reservation, scope).await;
        let busy = RequestError::Busy { kind: kind.name.clone() };
        if self.broker.reject(id, RejectReason::Busy, &busy.to_string()).await { Err(busy) } else { Ok(()) }
    }
}
