//! The `WorkerPool` service: submit, stream, execute, cancel, health.

use std::{pin::Pin, time::Duration};

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::{
    broker::EventReader,
    model::{Event, QueryId},
    pool::{Accepted, Pool, Request as QueryRequest},
};

use super::{
    convert, errors,
    events::{Events, Execution},
    proto::{self, worker_pool_server::WorkerPool},
    request,
};

/// How long a query that came by Execute runs on after its caller went away, so that the caller can come back.
const ABANDON_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct WorkerPoolService {
    pub pool: Pool,
}

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl WorkerPoolService {
    async fn submit(&self, query: QueryRequest) -> Result<Accepted, Status> {
        self.pool.submit(query).await.map_err(|error| errors::refused(&error))
    }

    /// Reads a query; one that makes no sense counts as refused.
    fn read(
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

#[tonic::async_trait]
impl WorkerPool for WorkerPoolService {
    async fn submit(&self, request: Request<proto::SubmitRequest>) -> Result<Response<proto::SubmitResponse>, Status> {
        let (_, extensions, proto::SubmitRequest { query_id, query }) = request.into_parts();
        let query = QueryRequest { caller: extensions.get().cloned(), ..self.read(&query_id, query, None)? };
        let accepted = self.submit(query).await?;
        Ok(Response::new(accepted_response(&accepted)))
    }

    type StreamResultsStream = Streaming<proto::StreamResultsResponse>;

    async fn stream_results(
        &self,
        request: Request<proto::StreamResultsRequest>,
    ) -> Result<Response<Self::StreamResultsStream>, Status> {
        let request = request.into_inner();
        let reader = self.open(&request::query_id(&request.query_id)?, request.from_sequence).await?;
        let respond = |event: Result<Event, Status>| {
            event.map(|event| proto::StreamResultsResponse { event: Some(convert::event(event)) })
        };
        Ok(Response::new(Box::pin(Events::new(reader).map(respond))))
    }

    type ExecuteStream = Streaming<proto::ExecuteResponse>;

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        let deadline = request::deadline(request.metadata()).inspect_err(|_| self.pool.refused_as_invalid())?;
        let (_, extensions, proto::ExecuteRequest { query_id, query }) = request.into_parts();
        let read = self.read(&query_id, query, Some(ABANDON_AFTER))?;
        let query = QueryRequest { deadline, caller: extensions.get().cloned(), ..read };
        let accepted = self.submit(query).await?;
        let reader = self.open(&accepted.id, 0).await?;
        Ok(Response::new(Box::pin(Execution::new(accepted_response(&accepted), reader))))
    }

    async fn cancel(&self, request: Request<proto::CancelRequest>) -> Result<Response<proto::CancelResponse>, Status> {
        let request = request.into_inner();
        let id = request::query_id(&request.query_id)?;
        request::reason(&request.reason)?;
        let found = self.pool.broker().cancel(&id, &request.reason).await;
        let found = found.map_err(|error| errors::no_query(&error))?;
        Ok(Response::new(convert::cancel_found(found)))
    }

    async fn health(&self, request: Request<proto::HealthRequest>) -> Result<Response<proto::HealthResponse>, Status> {
        let wanted = request.into_inner().kind;
        let mut health = self.pool.health();
        if !wanted.is_empty() {
            health = health.of_kind(&wanted).ok_or_else(|| errors::no_such_kind(&wanted, &self.pool.kind_names()))?;
        }
        let open = health.closed.is_none();
        let kinds = health.kinds.iter().map(|kind| convert::kind_health(kind, open)).collect();
        Ok(Response::new(convert::health(&health, kinds)))
    }
}

fn accepted_response(accepted: &Accepted) -> proto::SubmitResponse {
    proto::SubmitResponse {
        query_id: accepted.id.to_string(),
        kind: accepted.kind.to_string(),
        state: convert::query_state(accepted.submitted.state).into(),
        existed: accepted.submitted.existed,
    }
}
