//! The gRPC client of the command line and the load generator: makes the calls, and turns what gRPC says of a failure into a
//! plain error.

mod admin;
mod credentials;
mod endpoint;
mod glance;
mod load;
mod tls;

use std::{error::Error, fmt, future::Future, time::Duration};

use thiserror::Error;
use tokio::time::timeout;
use tonic::{
    Response, Status, Streaming,
    service::interceptor::InterceptedService,
    transport::{self, Channel},
};
use tonic_types::StatusExt;

use crate::api::proto::{
    self, Event, event::Body, execute_response, pool_admin_client::PoolAdminClient,
    worker_pool_client::WorkerPoolClient,
};

pub use admin::PoolEventStream;
use credentials::Bearer;
pub use credentials::Credentials;
pub use endpoint::{BadEndpoint, DEFAULT_ENDPOINT, Endpoint};
pub use load::{Caller, Failed, Heard};
pub use tls::TlsTrouble;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For a whole unary call, and for the first answer of a streaming one; a stream itself may take as long as its query.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream may be silent for hours; pings find out that the server is gone.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What the status after the final event may take; it tells nothing new.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A call that did not give what was asked for.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is no connection.
    #[error("cannot reach remuda at {endpoint}: {message}")]
    Unreachable { endpoint: String, message: String },
    /// There is a server, but no understanding about TLS.
    #[error("cannot talk to remuda at {endpoint}: {message}")]
    Tls { endpoint: String, message: String, trouble: TlsTrouble },
    /// There was a connection, and then no answer.
    #[error("lost the connection to remuda at {endpoint}: {message}")]
    Lost { endpoint: String, message: String },
    /// The server answered, with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
}

/// A status other than OK, as the server meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Which of the server's reasons it was, in capitals.
    pub reason: Option<String>,
    /// The fields of the request that are wrong, each with what is wrong about it.
    pub fields: Vec<(String, String)>,
    /// When trying again may help.
    pub retry_after: Option<Duration>,
}

/// The status codes of gRPC that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Cancelled,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    FailedPrecondition,
    OutOfRange,
    Unavailable,
    Unauthenticated,
    PermissionDenied,
    /// Any other.
    Other,
}

type Authorized = InterceptedService<Channel, Bearer>;

/// A connection to a server.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    channel: Channel,
}

/// The events of one query, up to its final one.
#[derive(Debug)]
pub struct EventStream {
    endpoint: Endpoint,
    source: Source,
    ended: bool,
}

#[derive(Debug)]
enum Source {
    Execute(Streaming<proto::ExecuteResponse>),
    Results(Streaming<proto::StreamResultsResponse>),
}

impl Client {
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, ClientError> {
        let unreachable = |error: transport::Error| {
            let told = |endpoint, message| ClientError::Unreachable { endpoint, message };
            broken(endpoint, &error, told)
        };
        let mut channel = transport::Endpoint::from_shared(endpoint.as_uri().to_owned()).map_err(unreachable)?;
        if endpoint.is_tls() {
            channel = channel.tls_config(endpoint.credentials.tls()).map_err(unreachable)?;
        }
        let channel = channel
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .user_agent(concat!("remuda/", env!("CARGO_PKG_VERSION")))
            .map_err(unreachable)?
            .connect()
            .await
            .map_err(unreachable)?;
        Ok(Self { endpoint: endpoint.clone(), channel })
    }

    pub async fn submit(&self, request: proto::SubmitRequest) -> Result<proto::SubmitResponse, ClientError> {
        self.answer(self.pool().submit(request)).await
    }

    /// Hands over a query and gives its events from the first one on.
    pub async fn execute(
        &self,
        request: proto::ExecuteRequest,
    ) -> Result<(proto::SubmitResponse, EventStream), ClientError> {
        let mut stream = self.answer(self.pool().execute(request)).await?;
        let first = timeout(CALL_TIMEOUT, stream.message()).await.map_err(|_| self.silent())?;
        let first = match first {
            Ok(first) => first,
            Err(status) => return Err(tls::explain(&self.endpoint, failed(&self.endpoint, &status)).await),
        };
        match first.and_then(|first| first.body) {
            Some(execute_response::Body::Accepted(accepted)) => Ok((accepted, self.events(Source::Execute(stream)))),
            _ => Err(self.lost("it did not say that it accepted the query")),
        }
    }

    pub async fn stream_results(&self, request: proto::StreamResultsRequest) -> Result<EventStream, ClientError> {
        let stream = self.answer(self.pool().stream_results(request)).await?;
        Ok(self.events(Source::Results(stream)))
    }

    pub async fn cancel(&self, request: proto::CancelRequest) -> Result<proto::CancelResponse, ClientError> {
        self.answer(self.pool().cancel(request)).await
    }

    pub async fn health(&self, request: proto::HealthRequest) -> Result<proto::HealthResponse, ClientError> {
        self.answer(self.pool().health(request)).await
    }

    /// What a message may hold is the server's to bound; whoever asked for a result wants all of it.
    fn pool(&self) -> WorkerPoolClient<Authorized> {
        WorkerPoolClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    fn admin(&self) -> PoolAdminClient<Authorized> {
        PoolAdminClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    fn channel(&self) -> Authorized {
        InterceptedService::new(self.channel.clone(), self.endpoint.credentials.bearer())
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, ClientError> {
        match timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(tls::explain(&self.endpoint, failed(&self.endpoint, &status)).await),
            Err(_) => Err(self.silent()),
        }
    }

    fn events(&self, source: Source) -> EventStream {
        EventStream { endpoint: self.endpoint.clone(), source, ended: false }
    }

    fn silent(&self) -> ClientError {
        self.lost(&format!("no answer within {} seconds", CALL_TIMEOUT.as_secs()))
    }

    fn lost(&self, message: &str) -> ClientError {
        ClientError::Lost { endpoint: self.endpoint.to_string(), message: message.to_owned() }
    }
}

impl EventStream {
    /// The next event; `None` after the final one. May be dropped and called again without losing an event.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if self.ended {
            // Execute sends a status that repeats what the final event said. Reading it ends the call in order.
            let _ = timeout(CLOSE_TIMEOUT, self.source.next()).await;
            return Ok(None);
        }
        let event = self.source.next().await.map_err(|status| failed(&self.endpoint, &status))?;
        self.ended = event.as_ref().is_none_or(is_final);
        Ok(event)
    }
}

impl Source {
    async fn next(&mut self) -> Result<Option<Event>, Status> {
        match self {
            Self::Execute(stream) => loop {
                match stream.message().await?.map(|message| message.body) {
                    Some(Some(execute_response::Body::Event(event))) => return Ok(Some(event)),
                    // Nothing else follows the acceptance in this version of the protocol.
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
            Self::Results(stream) => Ok(stream.message().await?.and_then(|message| message.event)),
        }
    }
}

/// Whether no event follows this one.
#[must_use]
pub fn is_final(event: &Event) -> bool {
    match &event.body {
        Some(Body::Complete(_) | Body::Error(_) | Body::Cancelled(_) | Body::Rejected(_)) => true,
        Some(Body::Session(_) | Body::Message(_) | Body::Retrying(_) | Body::Gap(_)) | None => false,
    }
}

/// A status that came over the wire has no source; one that has was made here, of a broken connection.
fn failed(endpoint: &Endpoint, status: &Status) -> ClientError {
    if let Some(error) = status.source() {
        return broken(endpoint, error, |endpoint, message| ClientError::Lost { endpoint, message });
    }
    let endpoint = endpoint.to_string();
    // This is how tonic puts it that there was an answer, but not from a gRPC server.
    if status.message().starts_with("grpc-status header missing") {
        let message = "what listens there does not speak gRPC (is it the HTTP port?)".to_owned();
        return ClientError::Unreachable { endpoint, message };
    }
    ClientError::Refused(Box::new(Refusal::from(status)))
}

/// A connection that was not made, or not kept; TLS may be why.
fn broken(
    endpoint: &Endpoint,
    error: &(dyn Error + 'static),
    otherwise: impl FnOnce(String, String) -> ClientError,
) -> ClientError {
    let (message, endpoint) = (root_cause(error), endpoint.to_string());
    match TlsTrouble::told_by(&message) {
        Some(trouble) => ClientError::Tls { endpoint, message, trouble },
        None => otherwise(endpoint, message),
    }
}

/// The innermost error, which is the one that says what happened, as the end of a sentence.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        Self {
            code: Code::from(status.code()),
            message: status.message().to_owned(),
            reason: details.error_info().map(|info| info.reason.clone()),
            fields: violations.iter().map(|field| (field.field.clone(), field.description.clone())).collect(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "the server said no more than {:?}", self.code)?,
            message => f.write_str(message)?,
        }
        let untold = |told: &&(String, String)| !self.message.contains(&told.1);
        for (field, description) in self.fields.iter().filter(untold) {
            write!(f, "; {field}: {description}")?;
        }
        match self.retry_after {
            Some(delay) => write!(f, "; try again in {}", humantime::format_duration(delay)),
            None => Ok(()),
        }
    }
}

impl From<tonic::Code> for Code {
    fn from(code: tonic::Code) -> Self {
        match code {
            tonic::Code::Cancelled => Self::Cancelled,
            tonic::Code::InvalidArgument => Self::InvalidArgument,
            tonic::Code::DeadlineExceeded => Self::DeadlineExceeded,
            tonic::Code::NotFound => Self::NotFound,
            tonic::Code::AlreadyExists => Self::AlreadyExists,
            tonic::Code::ResourceExhausted => Self::ResourceExhausted,
            tonic::Code::FailedPrecondition => Self::FailedPrecondition,
            tonic::Code::OutOfRange => Self::OutOfRange,
            tonic::Code::Unavailable => Self::Unavailable,
            tonic::Code::Unauthenticated => Self::Unauthenticated,
            tonic::Code::PermissionDenied => Self::PermissionDenied,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_listening_is_unreachable_with_the_systems_reason() {
        let error = Client::connect(&"unix:/nowhere/remuda.sock".parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot reach remuda at unix:/nowhere/remuda.sock: no such file or directory");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Client::connect(&free.to_string().parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot reach remuda at http://{free}: connection refused"));
    }

    #[test]
    fn refusal_tells_each_wrong_field_once_and_when_to_come_back() {
        let refusal = Refusal {
            code: Code::ResourceExhausted,
            message: "kind: there is no kind `x`".to_owned(),
            reason: None,
            fields: vec![
                ("kind".to_owned(), "there is no kind `x`".to_owned()),
                ("priority".to_owned(), "is over 1000".to_owned()),
            ],
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(refusal.to_string(), "kind: there is no kind `x`; priority: is over 1000; try again in 2s");
    }

    #[test]
    fn details_of_a_status_are_kept() {
        let mut details = tonic_types::ErrorDetails::with_bad_request_violation("query.payload", "is not JSON");
        details.set_error_info("BAD_PAYLOAD", "remuda", std::collections::HashMap::new());
        let status = Status::with_error_details(tonic::Code::InvalidArgument, "bad request", details);
        let ClientError::Refused(refusal) = failed(&"a:1".parse().unwrap(), &status) else { panic!("not refused") };
        assert_eq!(refusal.code, Code::InvalidArgument);
        assert_eq!(refusal.reason.as_deref(), Some("BAD_PAYLOAD"));
        assert_eq!(refusal.to_string(), "bad request; query.payload: is not JSON");
    }
}
