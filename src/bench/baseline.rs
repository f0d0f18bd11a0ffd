//! The baseline that a pool is compared with: a bare tonic server that answers Execute with the stream of a pool of echo
//! workers, but without a pool or workers.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::Stream;
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
    workers::echo::{self, SizedAnswer},
};

/// Serves until the future is dropped.
pub async fn serve_baseline(listener: TcpListener) -> io::Result<()> {
    let baseline = WorkerPoolServer::new(BaselineService::default()).max_decoding_message_size(usize::MAX);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(baseline).serve_with_incoming(incoming).await.map_err(io::Error::other)
}

/// Keeps the last answer: a load repeats one payload, and parsing it is not the work to be measured.
#[derive(Debug, Default)]
struct BaselineService {
    last: Mutex<Option<Arc<PreparedAnswer>>>,
}

/// The whole answer to a payload.
#[derive(Debug)]
struct PreparedAnswer {
    payload: String,
    accepted: SubmitResponse,
    messages: u64,
    message: Event,
    complete: Event,
}

impl BaselineService {
    fn prepare(&self, query: Option<proto::Query>) -> Result<Arc<PreparedAnswer>, Status> {
        let payload = query.unwrap_or_default().payload;
        let mut last = self.last.lock();
        match &*last {
            Some(prepared) if prepared.payload == payload => Ok(prepared.clone()),
            _ => {
                let prepared = Arc::new(PreparedAnswer::new(payload)?);
                *last = Some(prepared.clone());
                Ok(prepared)
            }
        }
    }
}

impl PreparedAnswer {
    fn new(payload: String) -> Result<Self, Status> {
        let refused = "the baseline supports only payloads such as {\"stream\":1000,\"size\":200}";
        let SizedAnswer { messages, content, result } =
            echo::sized_answer(&payload).ok_or_else(|| Status::invalid_argument(refused))?;
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
struct AnswerStream {
    prepared: Arc<PreparedAnswer>,
    /// Sequence number of the next event; `None` before the acceptance.
    next: Option<u64>,
}

impl Stream for AnswerStream {
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
impl WorkerPool for BaselineService {
    async fn submit(&self, request: Request<proto::SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        let prepared = self.prepare(request.into_inner().query)?;
        Ok(Response::new(prepared.accepted.clone()))
    }

    type ExecuteStream = AnswerStream;

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Result<Response<AnswerStream>, Status> {
        let prepared = self.prepare(request.into_inner().query)?;
        Ok(Response::new(AnswerStream { prepared, next: None }))
    }

    type StreamResultsStream = tokio_stream::Empty<Result<proto::StreamResultsResponse, Status>>;

    async fn stream_results(
        &self,
        _: Request<proto::StreamResultsRequest>,
    ) -> Result<Response<Self::StreamResultsStream>, Status> {
        Err(unsupported())
    }

    async fn cancel(&self, _: Request<proto::CancelRequest>) -> Result<Response<proto::CancelResponse>, Status> {
        Err(unsupported())
    }

    async fn health(&self, _: Request<proto::HealthRequest>) -> Result<Response<proto::HealthResponse>, Status> {
        Err(unsupported())
    }
}

fn unsupported() -> Status {
    Status::unimplemented("the baseline answers Execute and Submit only")
}
