//! The `WorkerPool` service: submit, stream, execute, cancel, health.

use std::time::Duration;

use http::{Response, request::Parts};
use tonic::Status;

use crate::{
    broker::EventReader,
    model::QueryId,
    pool::{Accepted, Pool, Request as QueryRequest},
};

use super::{
    answer::Answer,
    arrival::Arriving,
    convert, errors,
    events::Events,
    grpc::{read, reply, response},
    proto, request,
};

/// How long a query that came by Execute runs on after its caller went away, so that the caller can come back.
const ABANDON_AFTER: Duration = Duration::from_secs(5);

const PATH: &str = "/remuda.v1.WorkerPool/";

#[derive(Debug)]
pub(super) struct WorkerPoolService {
    pub pool: Pool,
    /// The longest request.
    pub max_message_bytes: usize,
}

type Answered = Result<Response<Answer>, Status>;

/// The methods of this service.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    Execute,
    Submit,
    StreamResults,
    Cancel,
    Health,
}

impl WorkerPoolService {
    /// What a call asks of this service, if it is one.
    pub(super) fn method(head: &Parts) -> Option<Method> {
        Some(match head.uri.path().strip_prefix(PATH)? {
            "Execute" => Method::Execute,
            "Submit" => Method::Submit,
            "StreamResults" => Method::StreamResults,
            "Cancel" => Method::Cancel,
            "Health" => Method::Health,
            _ => return None,
        })
    }

    pub(super) async fn call(&self, method: Method, head: &Parts, body: Arriving) -> Answered {
        match method {
            Method::Execute => self.execute(head, body).await,
            Method::Submit => self.submit(head, body).await,
            Method::StreamResults => self.stream_results(head, body).await,
            Method::Cancel => self.cancel(head, body).await,
            Method::Health => self.health(head, body).await,
        }
    }

    async fn submit(&self, head: &Parts, body: Arriving) -> Answered {
        let proto::SubmitRequest { query_id, query } = read(head, body, self.max_message_bytes).await?;
        let query = QueryRequest { caller: caller(head), ..self.query(&query_id, query, None)? };
        Ok(reply(&accepted_response(&self.take(query).await?)))
    }

    async fn stream_results(&self, head: &Parts, body: Arriving) -> Answered {
        let request: proto::StreamResultsRequest = read(head, body, self.max_message_bytes).await?;
        let reader = self.open(&request::query_id(&request.query_id)?, request.from_sequence).await?;
        Ok(response(Answer::Events(Events::stream(reader))))
    }

    async fn execute(&self, head: &Parts, body: Arriving) -> Answered {
        let proto::ExecuteRequest { query_id, query } = read(head, body, self.max_message_bytes).await?;
        let deadline = request::deadline(&head.headers).inspect_err(|_| self.pool.refused_as_invalid())?;
        let read = self.query(&query_id, query, Some(ABANDON_AFTER))?;
        let accepted = self.take(QueryRequest { deadline, caller: caller(head), ..read }).await?;
        let reader = self.open(&accepted.id, 0).await?;
        Ok(response(Answer::Events(Events::execution(accepted_response(&accepted), reader))))
    }

    async fn cancel(&self, head: &Parts, body: Arriving) -> Answered {
        let request: proto::CancelRequest = read(head, body, self.max_message_bytes).await?;
        let id = request::query_id(&request.query_id)?;
        request::reason(&request.reason)?;
        let found = self.pool.broker().cancel(&id, &request.reason).await;
        let found = found.map_err(|error| errors::no_query(&error))?;
        Ok(reply(&convert::cancel_found(found)))
    }

    async fn health(&self, head: &Parts, body: Arriving) -> Answered {
        let wanted = read::<proto::HealthRequest>(head, body, self.max_message_bytes).await?.kind;
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
fn caller(head: &Parts) -> Option<crate::trace::Context> {
    head.extensions.get().cloned()
}

fn accepted_response(accepted: &Accepted) -> proto::SubmitResponse {
    proto::SubmitResponse {
        query_id: accepted.id.to_string(),
        kind: accepted.kind.to_string(),
        state: convert::query_state(accepted.submitted.state).into(),
        existed: accepted.submitted.existed,
    }
}
