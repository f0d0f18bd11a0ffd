//! Submits queries: the kind is chosen, the broker accepts the query, and a ready worker gets it at once.

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tracing::debug;

use crate::{
    broker::{NewQuery, SubmitError, Submitted},
    metrics::RefusalReason,
    model::{QueryId, QuerySpec},
    state::PoolLifecycle,
    trace::{QueryTrace, TraceContext},
};

use super::{
    Pool, PoolParts,
    affinity::{lane_of, session_lane},
    dispatcher::Dispatcher,
    kinds::PoolKind,
    routing::RoutingError,
};

/// A query as the client sent it, before its kind is chosen.
#[derive(Debug)]
pub struct QueryRequest {
    pub id: Option<QueryId>,
    pub kind: Option<String>,
    pub spec: QuerySpec,
    /// Time left until the client's own deadline.
    pub deadline: Option<Duration>,
    /// Time without a reader of its events after which the query is cancelled.
    pub abandon_after: Option<Duration>,
    /// Trace context of the call.
    pub caller: Option<TraceContext>,
}

/// A query that was accepted, or that existed already.
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
    Unroutable(#[from] RoutingError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl RequestError {
    /// The label in metrics; `None` for a failure of the broker, which is no refusal.
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
    /// Accepts a query, and gives it to a ready worker if there is one.
    pub async fn submit(&self, request: QueryRequest) -> Result<Accepted, RequestError> {
        let accepted = self.accept(request).await;
        if let Err(error) = &accepted {
            debug!("query refused: {error}");
            if let Some(refusal) = error.refusal() {
                self.parts.context.metrics.record_refusal(refusal);
            }
        }
        accepted
    }

    /// Counts a query that was refused as malformed before it reached the pool.
    pub fn record_invalid_query(&self) {
        self.parts.context.metrics.record_refusal(RefusalReason::Invalid);
    }

    async fn accept(&self, request: QueryRequest) -> Result<Accepted, RequestError> {
        let PoolParts { context, admission, dispatcher, .. } = &*self.parts;
        admission.ensure_admitting()?;
        let kind = dispatcher.choose_kind(request.kind.as_deref(), request.id.as_ref(), &request.spec).await?;
        let name = kind.name.clone();
        if let Some(reason) = context.fail_fast_reason(&kind) {
            return Err(RequestError::CircuitOpen { kind: name, reason });
        }
        let id = request.id.unwrap_or_else(QueryId::generate);
        let queue_timeout = request.spec.queue_timeout.or(kind.config().queue_timeout);
        let mut spec = QuerySpec { kind: name.clone(), queue_timeout, ..request.spec };
        dispatcher.complete_key(&kind, &mut spec)?;
        let lane = lane_of(&spec);
        let reservation =
            if spec.reject_if_busy { dispatcher.reserve_for(&kind, lane.as_deref(), &id).await? } else { None };
        let trace = QueryTrace::begin(&id, &spec, request.caller);
        let query = NewQuery {
            id: id.clone(),
            spec,
            lane: lane.clone(),
            deadline: request.deadline,
            abandon_after: request.abandon_after,
            trace,
        };
        let submitted = context.broker.submit(query).await;
        let is_new = submitted.as_ref().is_ok_and(|submitted| !submitted.existed);
        match reservation {
            Some(reservation) if is_new => dispatcher.start_reserved(&kind, reservation, &id).await?,
            Some(reservation) => {
                // A query that came while the worker was reserved has found none ready: the supervisor looks again.
                drop(reservation);
                context.wake_supervisor();
            }
            None if is_new => dispatcher.dispatch_new(&kind, lane.as_deref()).await,
            None => {}
        }
        let submitted = submitted?;
        debug!(query = %id, kind = &*name, existed = submitted.existed, "query accepted");
        Ok(Accepted { id, kind: name, submitted })
    }
}

impl Dispatcher {
    /// Fills in the key of a query for a keyed kind that names only its session: it is the key of the worker that holds
    /// the session.
    fn complete_key(&self, kind: &PoolKind, spec: &mut QuerySpec) -> Result<(), RoutingError> {
        if kind.config().keyed && spec.key.is_none() {
            let session = spec.session_id().map(session_lane);
            let holder = session.and_then(|lane| self.worker_for_lane(kind, &lane));
            let key = holder.as_ref().and_then(|worker| worker.key());
            let key = key.ok_or_else(|| RoutingError::NoKey { kind: kind.name.clone() })?;
            spec.key = Some((**key).into());
        }
        Ok(())
    }
}
