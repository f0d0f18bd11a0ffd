//! The `WorkerPool` service: submit, stream, execute, cancel, health.

use std::time::Duration;

use tonic::{Request, Response, Status, metadata::MetadataMap};

use crate::{
    pool::{AdminError, Pool, QueryRequest},
    trace,
};

use super::{
    Reply, convert,
    events::ResultStream,
    layers::client_deadline,
    proto::{self, services::worker_pool_server::WorkerPool},
    request,
};

/// Time that a query of Execute runs on without a reader, so that its caller can reconnect.
const EXECUTE_ABANDON_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct WorkerPoolService {
    pub pool: Pool,
}

#[tonic::async_trait]
impl WorkerPool for WorkerPoolService {
    async fn submit(&self, request: Request<proto::SubmitRequest>) -> Reply<proto::SubmitResponse> {
        let (_, extensions, proto::SubmitRequest { query_id, query }) = request.into_parts();
        let query = self.read_query(&query_id, query, None)?;
        let query = QueryRequest { caller: extensions.get().cloned(), ..query };
        let accepted = self.pool.submit(query).await?;
        Ok(Response::new(convert::submit_response(&accepted)))
    }

    type ExecuteStream = ResultStream;

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Reply<ResultStream> {
        let (metadata, extensions, proto::ExecuteRequest { query_id, query }) = request.into_parts();
        let query = self.read_query(&query_id, query, Some(EXECUTE_ABANDON_AFTER))?;
        let deadline = self.read_deadline(metadata)?;
        let caller = extensions.get::<trace::TraceContext>().cloned();
        let query = QueryRequest { deadline, caller, ..query };
        let accepted = self.pool.submit(query).await?;
        let reader = self.pool.broker().read(&accepted.id, 0).await?;
        let mut events = ResultStream::execute(accepted, reader);
        events.wait_for_first_event().await;
        Ok(Response::new(events))
    }

    type StreamResultsStream = ResultStream;

    async fn stream_results(&self, request: Request<proto::StreamResultsRequest>) -> Reply<ResultStream> {
        let request = request.into_inner();
        let reader = self.pool.broker().read(&request::query_id(&request.query_id)?, request.from_sequence).await?;
        Ok(Response::new(ResultStream::stream_results(reader)))
    }

    async fn cancel(&self, request: Request<proto::CancelRequest>) -> Reply<proto::CancelResponse> {
        let request = request.into_inner();
        let id = request::query_id(&request.query_id)?;
        request::reason(&request.reason)?;
        let found = self.pool.broker().cancel(&id, &request.reason).await?;
        Ok(Response::new(convert::cancel_found(found)))
    }

    async fn health(&self, request: Request<proto::HealthRequest>) -> Reply<proto::HealthResponse> {
        let kind = request.into_inner().kind;
        let mut health = self.pool.health();
        if !kind.is_empty() {
            let known = || self.pool.kind_names().join(", ");
            health = health.of_kind(&kind).ok_or_else(|| AdminError::NoSuchKind { kind, known: known() })?;
        }
        Ok(Response::new(convert::health(&health)))
    }
}

impl WorkerPoolService {
    /// Reads a query; an invalid one is counted as refused.
    fn read_query(
        &self,
        id: &str,
        query: Option<proto::Query>,
        abandon_after: Option<Duration>,
    ) -> Result<QueryRequest, Status> {
        request::query(id, query, abandon_after).inspect_err(|_| self.pool.record_invalid_query())
    }

    /// The deadline of the call, which is the deadline of its query.
    fn read_deadline(&self, metadata: MetadataMap) -> Result<Option<Duration>, Status> {
        client_deadline(&metadata.into_headers()).inspect_err(|_| self.pool.record_invalid_query())
    }
}
