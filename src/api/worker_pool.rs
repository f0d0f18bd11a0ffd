//! The `WorkerPool` service: submit, stream, execute, cancel, health.

use std::time::Duration;

use tonic::{Request, Response, Status, metadata::MetadataMap};

use crate::{
    broker::EventReader,
    model::QueryId,
    pool::{Pool, Request as QueryRequest},
    trace,
};

use super::{
    convert, errors,
    events::Events,
    layers::client_deadline,
    proto::{self, services::worker_pool_server::WorkerPool},
    request,
};

/// A query that came by Execute runs on this long after its caller went away, so that the caller can come back.
const ABANDON_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct WorkerPoolService {
    pub pool: Pool,
}

#[tonic::async_trait]
impl WorkerPool for WorkerPoolService {
    async fn submit(&self, request: Request<proto::SubmitRequest>) -> Result<Response<proto::SubmitResponse>, Status> {
        let (_, extensions, proto::SubmitRequest { query_id, query }) = request.into_parts();
        let query = self.read_query(&query_id, query, None)?;
        let query = QueryRequest { caller: extensions.get().cloned(), ..query };
        let accepted = self.pool.submit(query).await.map_err(|error| errors::refused(&error))?;
        Ok(Response::new(convert::submit_response(&accepted)))
    }

    type ExecuteStream = Events;

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Result<Response<Events>, Status> {
        let (metadata, extensions, proto::ExecuteRequest { query_id, query }) = request.into_parts();
        let query = self.read_query(&query_id, query, Some(ABANDON_AFTER))?;
        let deadline = self.read_deadline(metadata)?;
        let caller = extensions.get::<trace::Context>().cloned();
        let query = QueryRequest { deadline, caller, ..query };
        let accepted = self.pool.submit(query).await.map_err(|error| errors::refused(&error))?;
        let reader = self.open(&accepted.id, 0).await?;
        let mut events = Events::execute(accepted, reader);
        events.wait_for_first_event().await;
        Ok(Response::new(events))
    }

    type StreamResultsStream = Events;

    async fn stream_results(&self, request: Request<proto::StreamResultsRequest>) -> Result<Response<Events>, Status> {
        let request = request.into_inner();
        let reader = self.open(&request::query_id(&request.query_id)?, request.from_sequence).await?;
        Ok(Response::new(Events::stream_results(reader)))
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

impl WorkerPoolService {
    /// Reads a query; one that makes no sense counts as refused.
    fn read_query(
        &self,
        id: &str,
        query: Option<proto::Query>,
        abandon_after: Option<Duration>,
    ) -> Result<QueryRequest, Status> {
        request::query(id, query, abandon_after).inspect_err(|_| self.pool.refused_as_invalid())
    }

    /// The client's deadline is the query's.
    fn read_deadline(&self, metadata: MetadataMap) -> Result<Option<Duration>, Status> {
        client_deadline(&metadata.into_headers()).inspect_err(|_| self.pool.refused_as_invalid())
    }

    async fn open(&self, id: &QueryId, from: u64) -> Result<EventReader, Status> {
        self.pool.broker().read(id, from).await.map_err(|error| errors::no_query(&error))
    }
}
