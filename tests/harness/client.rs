//! A gRPC client with the verbs that tests need.

use std::{error::Error as _, time::Duration};

use remuda::api::proto::{
    self, Event, ExecuteRequest, Query, StreamResultsRequest, StreamResultsResponse, SubmitRequest, event::Body,
    execute_response, pool_admin_client::PoolAdminClient, worker_pool_client::WorkerPoolClient,
};
use serde_json::Value;
use tokio::{task::JoinHandle, time::timeout};
use tonic::{Code, Status, Streaming, transport::Channel};

use super::{DEADLINE, eventually_async};

#[derive(Clone)]
pub(crate) struct Client {
    pub pool: WorkerPoolClient<Channel>,
    pub admin: PoolAdminClient<Channel>,
}

/// A query with this payload and nothing else.
pub(crate) fn query(payload: &Value) -> Query {
    Query { payload: payload.to_string(), ..Default::default() }
}

/// An event, reduced to what tests compare.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TestEvent {
    Session(String),
    Message(Value),
    Complete(Value),
    Error(String),
    Cancelled(String),
    Rejected(String),
    Other(String),
}

/// The outcome of an Execute.
#[derive(Debug)]
pub(crate) struct Ended {
    pub query_id: String,
    pub events: Vec<Event>,
    pub status: Option<Status>,
}

impl From<&Event> for TestEvent {
    fn from(event: &Event) -> Self {
        let json = |text: &str| serde_json::from_str(text).expect("content is JSON");
        match event.body.as_ref().expect("an event has a body") {
            Body::Session(session) => Self::Session(session.session_id.clone()),
            Body::Message(message) => Self::Message(json(&message.content)),
            Body::Complete(complete) => Self::Complete(json(&complete.result)),
            Body::Error(error) => Self::Error(error.message.clone()),
            Body::Cancelled(cancelled) => Self::Cancelled(cancelled.reason.clone()),
            Body::Rejected(rejected) => Self::Rejected(rejected.message.clone()),
            other => Self::Other(format!("{other:?}")),
        }
    }
}

impl Ended {
    pub(crate) fn test_events(&self) -> Vec<TestEvent> {
        self.events.iter().map(TestEvent::from).collect()
    }

    pub(crate) fn last(&self) -> TestEvent {
        self.events.last().map(TestEvent::from).expect("there is a final event")
    }

    pub(crate) fn result(&self) -> Value {
        match self.last() {
            TestEvent::Complete(result) => result,
            other => panic!("not complete but {other:?}"),
        }
    }

    /// The text of the failure that the query ended with.
    pub(crate) fn error(&self) -> proto::ErrorEvent {
        match self.events.last().and_then(|event| event.body.clone()) {
            Some(Body::Error(error)) => error,
            other => panic!("not an error but {other:?}"),
        }
    }
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect_timeout(DEADLINE).connect().await.expect("the server accepts");
        Self::over(channel)
    }

    pub(crate) fn over(channel: Channel) -> Self {
        Self { pool: WorkerPoolClient::new(channel.clone()), admin: PoolAdminClient::new(channel) }
    }

    /// Submits and gives the query's id.
    pub(crate) async fn submit(&mut self, query: Query) -> Result<String, Status> {
        let request = SubmitRequest { query_id: String::new(), query: Some(query) };
        Ok(within(self.pool.submit(request)).await?.into_inner().query_id)
    }

    /// Submits and streams to the end.
    pub(crate) async fn execute(&mut self, query: Query) -> Ended {
        self.execute_as("", query).await.expect("the query is accepted")
    }

    pub(crate) async fn execute_as(&mut self, id: &str, query: Query) -> Result<Ended, Status> {
        let request = ExecuteRequest { query_id: id.to_owned(), query: Some(query) };
        let mut stream = within(self.pool.execute(request)).await?.into_inner();
        let mut ended = Ended { query_id: String::new(), events: Vec::new(), status: None };
        loop {
            match within(stream.message()).await {
                Ok(Some(response)) => match response.body.expect("a response has a body") {
                    execute_response::Body::Accepted(accepted) => ended.query_id = accepted.query_id,
                    execute_response::Body::Event(event) => ended.events.push(event),
                },
                Ok(None) => return Ok(ended),
                Err(status) => {
                    ended.status = Some(status);
                    return Ok(ended);
                }
            }
        }
    }

    /// Reads events from a sequence number on, at most `max` of them.
    pub(crate) async fn read(&mut self, id: &str, from: u64, max: usize) -> Result<Vec<Event>, Status> {
        let stream = self.open_stream(id, from).await?;
        read_events(stream, max).await
    }

    async fn open_stream(&mut self, id: &str, from: u64) -> Result<Streaming<StreamResultsResponse>, Status> {
        let request = StreamResultsRequest { query_id: id.to_owned(), from_sequence: from };
        Ok(within(self.pool.stream_results(request)).await?.into_inner())
    }

    /// Returns once the stream of the query's events is open, and reads it to its end on its own.
    pub(crate) async fn follow(&mut self, id: &str) -> JoinHandle<Vec<TestEvent>> {
        let stream = self.open_stream(id, 0).await.expect("the query is known");
        tokio::spawn(async move {
            let events = read_events(stream, usize::MAX).await.expect("the stream goes on");
            events.iter().map(TestEvent::from).collect()
        })
    }

    pub(crate) async fn read_all(&mut self, id: &str) -> Vec<TestEvent> {
        let events = self.read(id, 0, usize::MAX).await.expect("the query is known");
        events.iter().map(TestEvent::from).collect()
    }

    pub(crate) async fn cancel(&mut self, id: &str, reason: &str) -> Result<proto::CancelResponse, Status> {
        let request = proto::CancelRequest { query_id: id.to_owned(), reason: reason.to_owned() };
        Ok(within(self.pool.cancel(request)).await?.into_inner())
    }

    pub(crate) async fn state(&mut self, id: &str) -> proto::QueryState {
        let request = proto::GetQueryRequest { query_id: id.to_owned() };
        let response = within(self.admin.get_query(request)).await.expect("the query is known").into_inner();
        response.query.expect("an answer has a query").state()
    }

    pub(crate) async fn workers(&mut self) -> Vec<proto::Worker> {
        let response = within(self.admin.list_workers(proto::ListWorkersRequest::default())).await;
        response.expect("workers can be listed").into_inner().workers
    }

    pub(crate) async fn worker(&mut self, id: u64) -> proto::GetWorkerResponse {
        let response = within(self.admin.get_worker(proto::GetWorkerRequest { worker_id: id })).await;
        response.expect("the worker is known").into_inner()
    }

    /// Has the configuration read again, and gives what changed.
    pub(crate) async fn reload(&mut self, dry_run: bool) -> Result<proto::ReloadResponse, Status> {
        Ok(within(self.admin.reload(proto::ReloadRequest { dry_run })).await?.into_inner())
    }

    /// Waits until the supervisor has looked at its pool at least twice; it does so every half second.
    pub(crate) async fn two_ticks(&mut self) {
        let uptime = |health: proto::HealthResponse| Duration::try_from(health.uptime.expect("an uptime")).unwrap();
        let later = uptime(self.health().await) + Duration::from_millis(1_200);
        eventually_async("two looks at the pool", || {
            let mut client = self.clone();
            async move { (uptime(client.health().await) >= later).then_some(()) }
        })
        .await;
    }

    pub(crate) async fn health(&mut self) -> proto::HealthResponse {
        let response = within(self.pool.health(proto::HealthRequest::default())).await;
        response.expect("health can be asked for").into_inner()
    }
}

/// At most `max` events of a stream.
async fn read_events(mut stream: Streaming<StreamResultsResponse>, max: usize) -> Result<Vec<Event>, Status> {
    let mut events = Vec::new();
    while events.len() < max {
        let Some(response) = within(stream.message()).await? else { break };
        events.push(response.event.expect("a response has an event"));
    }
    Ok(events)
}

/// Bounds a call, since none may hang.
/// True for a call that the end of its connection cut off before the server saw it. Other clients send such a call again by
/// themselves; tonic reports it, as cancelled or with the GOAWAY.
pub(crate) fn was_cut_off(status: &Status) -> bool {
    let mut sources = std::iter::successors(status.source(), |error| (*error).source());
    status.code() == Code::Cancelled
        || sources.any(|error| {
            error.downcast_ref::<h2::Error>().is_some_and(|error| error.reason() == Some(h2::Reason::NO_ERROR))
        })
}

async fn within<T>(call: impl Future<Output = T>) -> T {
    timeout(DEADLINE, call).await.unwrap_or_else(|_| panic!("a call took longer than {DEADLINE:?}"))
}
