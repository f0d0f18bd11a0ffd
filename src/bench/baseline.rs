//! The baseline that a pool is measured against: a bare tonic server that answers Execute with the stream that a pool of echo
//! workers would give, with no pool and no worker behind it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use crate::api::proto::{
    self, CompleteEvent, Event, ExecuteResponse, MessageEvent, QueryState, SubmitResponse, event::Body,
    execute_response, worker_pool_server::WorkerPool, worker_pool_server::WorkerPoolServer,
};
use crate::{
    model::QueryId,
    workers::echo::{self, Answer},
};

#[derive(Debug, Error)]
#[error("the baseline failed: {0}")]
pub struct BaselineError(#[from] tonic::transport::Error);

/// Serves until `closing` is cancelled.
pub async fn serve_baseline(listener: TcpListener, closing: CancellationToken) -> Result<(), BaselineError> {
    let baseline = WorkerPoolServer::new(Baseline::default()).max_decoding_message_size(usize::MAX);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(baseline).serve_with_incoming_shutdown(incoming, closing.cancelled()).await?;
    Ok(())
}

/// Remembers the last answer: a load asks the same thing again and again, and reading a payload is not the baseline's work.
#[derive(Debug, Default)]
struct Baseline {
    last: Mutex<Option<Arc<Prepared>>>,
}

/// The whole answer to a payload.
#[derive(Debug)]
struct Prepared {
    payload: String,
    accepted: SubmitResponse,
    messages: u64,
    message: Event,
    complete: Event,
}

impl Baseline {
    fn prepare(&self, query: Option<proto::Query>) -> Result<Arc<Prepared>, Status> {
        let payload = query.unwrap_or_default().payload;
        let mut last = self.last.lock();
        match &*last {
            Some(prepared) if prepared.payload == payload => Ok(prepared.clone()),
            _ => {
                let prepared = Arc::new(Prepared::new(payload)?);
                *last = Some(prepared.clone());
                Ok(prepared)
            }
        }
    }
}

impl Prepared {
    fn new(payload: String) -> Result<Self, Status> {
        let refused = "the baseline only knows payloads such as {\"stream\":1000,\"size\":200}";
        let Answer { messages, content, result } =
            echo::answer(&payload).ok_or_else(|| Status::invalid_argument(refused))?;
        let event = |sequence, body| {
            let at = Some(SystemTime::now().into());
            Event { sequence, attempt: 1, at, body: Some(body) }
        };
        let accepted = SubmitResponse {
            query_id: QueryId::generate().to_string(),
            kind: "echo".to_owned(),
            state: QueryState::Processing.into(),
            existed: false,
        };
        let message = event(0, Body::Message(MessageEvent { content }));
        let complete = event(messages, Body::Complete(CompleteEvent { result }));
        Ok(Self { payload, accepted, messages, message, complete })
    }

    fn event(&self, sequence: u64) -> Event {
        if sequence == self.messages { self.complete.clone() } else { Event { sequence, ..self.message.clone() } }
    }
}

/// The answer, from the acceptance to the final event.
struct Answering {
    prepared: Arc<Prepared>,
    /// The number of the next event; `None` before the acceptance.
    next: Option<u64>,
}

impl Stream for Answering {
    type Item = Result<ExecuteResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = match self.next {
            None => execute_response::Body::Accepted(self.prepared.accepted.clone()),
            Some(sequence) if sequence > self.prepared.messages => return Poll::Ready(None),
            Some(sequence) => execute_response::Body::Event(self.prepared.event(sequence)),
        };
        self.next = Some(self.next.map_or(0, |sequence| sequence + 1));
        Poll::Ready(Some(Ok(ExecuteResponse { body: Some(body) })))
    }
}

#[tonic::async_trait]
impl WorkerPool for Baseline {
    async fn submit(&self, request: Request<proto::SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        let prepared = self.prepare(request.into_inner().query)?;
        Ok(Response::new(prepared.accepted.clone()))
    }

    type ExecuteStream = Answering;

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Result<Response<Answering>, Status> {
        let prepared = self.prepare(request.into_inner().query)?;
        Ok(Response::new(Answering { prepared, next: None }))
    }

    type StreamResultsStream = tokio_stream::Empty<Result<proto::StreamResultsResponse, Status>>;

    async fn stream_results(
        &self,
        _: Request<proto::StreamResultsRequest>,
    ) -> Result<Response<Self::StreamResultsStream>, Status> {
        Err(nothing_here())
    }

    async fn cancel(&self, _: Request<proto::CancelRequest>) -> Result<Response<proto::CancelResponse>, Status> {
        Err(nothing_here())
    }

    async fn health(&self, _: Request<proto::HealthRequest>) -> Result<Response<proto::HealthResponse>, Status> {
        Err(nothing_here())
    }
}

fn nothing_here() -> Status {
    Status::unimplemented("the baseline answers Execute and Submit only")
}
