//! The gRPC client of the command line and the load generator.

mod credentials;
mod endpoint;
mod error;
mod load;
mod streams;
mod tls;

use std::{future::Future, time::Duration};

use tokio::time::timeout;
use tonic::{
    Response, Status,
    service::interceptor::InterceptedService,
    transport::{self, Channel},
};

use crate::api::proto::{
    self, execute_response, pool_admin_client::PoolAdminClient, worker_pool_client::WorkerPoolClient,
};

pub use credentials::{BearerToken, Credentials};
pub use endpoint::{DEFAULT_ENDPOINT, Endpoint, ParseEndpointError};
pub use error::{ClientError, Refusal};
pub use load::{CallFailure, CallStats, LoadCaller};
pub use streams::{PoolWatchStream, QueryEventStream};
pub use tls::TlsMismatch;
pub use tonic::Code;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For a whole unary call, and for the first answer of a streaming one; a stream itself may take as long as its query.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream may be silent for hours; pings find out that the server is gone.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A channel that sends the client's token with every call.
pub type Authorized = InterceptedService<Channel, BearerToken>;

/// A connection to a server.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    channel: Channel,
}

impl Client {
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, ClientError> {
        let unreachable = |error| ClientError::unreachable(endpoint, &error);
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

    /// The calls of clients, to be made with [`call`](Self::call). The server bounds the size of messages, not the client.
    #[must_use]
    pub fn pool(&self) -> WorkerPoolClient<Authorized> {
        WorkerPoolClient::new(self.authorized()).max_decoding_message_size(usize::MAX)
    }

    /// The calls of operators, to be made with [`call`](Self::call).
    #[must_use]
    pub fn admin(&self) -> PoolAdminClient<Authorized> {
        PoolAdminClient::new(self.authorized()).max_decoding_message_size(usize::MAX)
    }

    /// Makes a call of [`pool`](Self::pool) or [`admin`](Self::admin), with a time limit and readable errors.
    pub async fn call<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, ClientError> {
        self.explain(timeout(CALL_TIMEOUT, call).await).await.map(Response::into_inner)
    }

    /// Submits a query and streams its events from the first one on.
    pub async fn execute(
        &self,
        request: proto::ExecuteRequest,
    ) -> Result<(proto::SubmitResponse, QueryEventStream), ClientError> {
        let mut stream = self.call(self.pool().execute(request)).await?;
        let first = self.explain(timeout(CALL_TIMEOUT, stream.message()).await).await?;
        match first.and_then(|first| first.body) {
            Some(execute_response::Body::Accepted(accepted)) => {
                Ok((accepted, QueryEventStream::of_execute(self.endpoint.clone(), stream)))
            }
            _ => Err(ClientError::lost(&self.endpoint, "it did not say that it accepted the query")),
        }
    }

    pub async fn stream_results(&self, request: proto::StreamResultsRequest) -> Result<QueryEventStream, ClientError> {
        let stream = self.call(self.pool().stream_results(request)).await?;
        Ok(QueryEventStream::of_results(self.endpoint.clone(), stream))
    }

    /// Watches the events of the pool from when this returns.
    pub async fn watch_events(&self, request: proto::WatchEventsRequest) -> Result<PoolWatchStream, ClientError> {
        let stream = self.call(self.admin().watch_events(request)).await?;
        Ok(PoolWatchStream::new(self.endpoint.clone(), stream))
    }

    async fn explain<T, E>(&self, answer: Result<Result<T, Status>, E>) -> Result<T, ClientError> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(tls::explain(&self.endpoint, ClientError::new(&self.endpoint, &status)).await),
            Err(_) => {
                let message = format!("no answer within {} seconds", CALL_TIMEOUT.as_secs());
                Err(ClientError::lost(&self.endpoint, &message))
            }
        }
    }

    fn authorized(&self) -> Authorized {
        InterceptedService::new(self.channel.clone(), self.endpoint.credentials.bearer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unreachable_server_is_reported_with_the_systems_reason() {
        let error = Client::connect(&"unix:/nowhere/remuda.sock".parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot reach remuda at unix:/nowhere/remuda.sock: no such file or directory");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Client::connect(&free.to_string().parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot reach remuda at http://{free}: connection refused"));
    }
}
