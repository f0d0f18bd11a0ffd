//! The `WorkerPool` service: submit, stream, execute, cancel, health.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use crate::{
    broker::EventReader,
    model::QueryId,
    pool::{Accepted, Pool, Request as QueryRequest},
};

use super::{
    convert, errors,
    events::Events,
    grpc::{self, read, reply, response},
    proto, request,
};

/// How long a query that came by Execute runs on after its caller went away, so that the caller can come back.
const ABANDON_AFTER: Duration = Duration::from_secs(5);

const PATH: &str = "/remuda.v1.WorkerPool/";

/// Answers calls of this service, and hands on all others.
#[derive(Debug, Clone)]
pub(super) struct WorkerPoolLayer(pub Arc<WorkerPoolService>);

#[derive(Debug, Clone)]
pub(super) struct WorkerPool<S> {
    others: S,
    service: Arc<WorkerPoolService>,
}

#[derive(Debug)]
pub(super) struct WorkerPoolService {
    pub pool: Pool,
    /// The longest request.
    pub max_message_bytes: usize,
}

type Answering<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Layer<S> for WorkerPoolLayer {
    type Service = WorkerPool<S>;

    fn layer(&self, others: S) -> WorkerPool<S> {
        WorkerPool { others, service: self.0.clone() }
    }
}

impl<S> Service<Request<Body>> for WorkerPool<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering<Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.others.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().strip_prefix(PATH);
        let service = self.service.clone();
        match method {
            Some("Execute") => answer(async move { service.execute(request).await }),
            Some("Submit") => answer(async move { service.submit(request).await }),
            Some("StreamResults") => answer(async move { service.stream_results(request).await }),
            Some("Cancel") => answer(async move { service.cancel(request).await }),
            Some("Health") => answer(async move { service.health(request).await }),
            _ => Box::pin(self.others.call(request)),
        }
    }
}

fn answer(handling: impl Future<Output = Result<Response<Body>, Status>> + Send + 'static) -> Answering<Infallible> {
    Box::pin(async move { Ok(handling.await.unwrap_or_else(grpc::refusal)) })
}

impl WorkerPoolService {
    async fn submit(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let proto::SubmitRequest { query_id, query } = read(&parts, body, self.max_message_bytes).await?;
        let query = QueryRequest { caller: caller(&parts), ..self.query(&query_id, query, None)? };
        Ok(reply(&accepted_response(&self.take(query).await?)))
    }

    async fn stream_results(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let request: proto::StreamResultsRequest = read(&parts, body, self.max_message_bytes).await?;
        let reader = self.open(&request::query_id(&request.query_id)?, request.from_sequence).await?;
        Ok(response(Events::stream(reader)))
    }

    async fn execute(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let proto::ExecuteRequest { query_id, query } = read(&parts, body, self.max_message_bytes).await?;
        let deadline = request::deadline(&parts.headers).inspect_err(|_| self.pool.refused_as_invalid())?;
        let read = self.query(&query_id, query, Some(ABANDON_AFTER))?;
        let accepted = self.take(QueryRequest { deadline, caller: caller(&parts), ..read }).await?;
        let reader = self.open(&accepted.id, 0).await?;
        Ok(response(Events::execution(accepted_response(&accepted), reader)))
    }

    async fn cancel(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let request: proto::CancelRequest = read(&parts, body, self.max_message_bytes).await?;
        let id = request::query_id(&request.query_id)?;
        request::reason(&request.reason)?;
        let found = self.pool.broker().cancel(&id, &request.reason).await;
        let found = found.map_err(|error| errors::no_query(&error))?;
        Ok(reply(&convert::cancel_found(found)))
    }

    async fn health(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let wanted = read::<proto::HealthRequest>(&parts, body, self.max_message_bytes).await?.kind;
        let mut health = self.pool.health();
        if !wanted.is_empty() {
            health = health.of_kind(&wanted).ok_or_else(|| errors::no_such_kind(&wanted, &self.pool.kind_names()))?;
        }
        let open = health.closed.is_none();
        let kinds = health.kinds.iter().map(|kind| convert::kind_health(kind, open)).collect();
        Ok(reply(&convert::health(&health, kinds)))
    }

    async fn take(&self, query: QueryRequest) -> Result<Accepted, Status> {
        self.pool.submit(query).await.map_err(|error| errors::refused(&error))
    }

    /// Reads a query; one that makes no sense counts as refused.
    fn query(
        &self,
        id: &str,
        query: Option<proto::Query>,
        by_default: Option<Duration>,
    ) -> Result<QueryRequest, Status> {
        request::query(id, query, by_default).inspect_err(|_| self.pool.refused_as_invalid())
    }

    async fn open(&self, id: &QueryId, from: u64) -> Result<Box<dyn EventReader>, Status> {
        self.pool.broker().read(id, from).await.map_err(|error| errors::no_query(&error))
    }
}

/// The trace that a call belongs to.
fn caller(parts: &Parts) -> Option<crate::trace::Context> {
    parts.extensions.get().cloned()
}

fn accepted_response(accepted: &Accepted) -> proto::SubmitResponse {
    proto::SubmitResponse {
        query_id: accepted.id.to_string(),
        kind: accepted.kind.to_string(),
        state: convert::query_state(accepted.submitted.state).into(),
        existed: accepted.submitted.existed,
    }
}
