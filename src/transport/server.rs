//! Serves HTTP/2 on accepted connections with hyper, and shuts them down gracefully.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::task::TaskTracker;
use tower::Service;
use tracing::debug;

use crate::config::ServerConfig;

use super::{connection::PendingConnection, limiter::ConnectionEntry, listener::Acceptor};

/// Calls that a client may reset before the server has accepted them; one more closes the connection. Calls that are reset
/// later do not count, so that only floods reach this.
const MAX_PENDING_RESETS: usize = 256;
/// Streams that may violate HTTP/2 on one connection before it is closed.
const MAX_LOCAL_RESETS: usize = 1024;
/// Flow-control window of a stream and of a connection: large requests arrive in few round trips.
const RECEIVE_WINDOW_BYTES: u32 = 1 << 20;
/// Response bytes that HTTP/2 buffers: enough for one write. A larger buffer only lets clients that do not read pin more
/// memory.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Connection ages vary by up to a tenth, so that connections made together do not end together.
const AGE_JITTER_FRACTION: f64 = 0.1;
/// Time for the first byte of a connection that was accepted just before a drain.
const DRAIN_GREETING_TIMEOUT: Duration = Duration::from_millis(250);

/// Serves every connection with a service from `make_service`, until the acceptor drains. Then new connections are refused,
/// open ones get a GOAWAY, and this returns when their calls have ended.
///
/// It does not return while a client keeps a call open: the caller bounds the wait and drops this, which closes all
/// connections.
pub async fn serve<M, S, B>(mut acceptor: Acceptor, limits: &ServerConfig, make_service: M)
where
    M: Fn(Arc<ConnectionEntry>) -> S,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    let calls = TaskTracker::new();
    let server = Arc::new(Http2Server::new(limits, calls.clone()));
    let mut connections = JoinSet::new();
    loop {
        let pending = tokio::select! {
            pending = acceptor.next() => pending,
            Some(_) = connections.join_next() => continue,
        };
        let Some(pending) = pending else { break };
        let service = make_service(pending.slot.entry.clone());
        connections.spawn(server.clone().serve(pending, service));
    }
    // The port closes before clients learn of the drain, so that none of them connects here again.
    acceptor.close().cancel();
    while connections.join_next().await.is_some() {}
    calls.close();
    calls.wait().await;
}

/// Settings of all connections.
struct Http2Server {
    http2: http2::Builder<CallExecutor>,
    max_age: Option<Duration>,
    max_age_grace: Option<Duration>,
}

/// Spawns the calls of a connection as tasks that the server waits for.
#[derive(Debug, Clone)]
struct CallExecutor(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for CallExecutor {
    fn execute(&self, call: F) {
        self.0.spawn(call);
    }
}

impl Http2Server {
    fn new(limits: &ServerConfig, calls: TaskTracker) -> Self {
        let mut http2 = http2::Builder::new(CallExecutor(calls));
        http2
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
            .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(u32::try_from(limits.max_metadata_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.max_concurrent_streams.get())
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_LOCAL_RESETS)
            .keep_alive_interval(limits.keepalive_interval)
            .keep_alive_timeout(limits.keepalive_timeout);
        let (max_age, max_age_grace) = (limits.max_connection_age, limits.max_connection_age_grace);
        Self { http2, max_age, max_age_grace }
    }

    /// Serves one connection until its client closes it, it is too old, or the server drains and its calls have ended.
    async fn serve<S, B>(self: Arc<Self>, pending: PendingConnection, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        let (entry, peer) = (pending.slot.entry.clone(), pending.peer);
        let greeted = tokio::select! {
            biased; // A client that has sent something is served, or gets a GOAWAY.
            greeted = pending.wait_for_first_byte() => greeted,
            () = wait_to_close_silent(&entry) => return,
        };
        if let Err(error) = greeted {
            return debug!(peer = show(peer), %error, "connection ended before its first byte");
        }
        let established = tokio::select! {
            // Boxed, because a handshake is large and most connections are past it.
            established = Box::pin(pending.establish()) => established,
            () = wait_to_make_room(&entry) => return,
        };
        let connection = match established {
            Ok(connection) => connection,
            Err(error) => return debug!(peer = show(peer), %error, "TLS handshake failed"),
        };
        // The services are always ready, so `poll_ready` is not called.
        let service = service_fn(move |request| service.clone().call(request));
        // Boxed, so that a connection before its first byte costs little.
        let mut serving = Box::pin(self.http2.serve_connection(TokioIo::new(connection), service));
        let grace = tokio::select! {
            ended = serving.as_mut() => return log_end(peer, ended),
            () = entry.wait_for_leave_request() => None,
            () = sleep_if_some(self.max_age.map(with_jitter)) => self.max_age_grace,
        };
        if entry.is_leaving() {
            return debug!(peer = show(peer), "connection closed to make room for another");
        }
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            ended = serving => log_end(peer, ended),
            () = wait_to_make_room(&entry) => {}
            () = sleep_if_some(grace) => {
                debug!(peer = show(peer), "connection closed at the end of server.max_connection_age_grace");
            }
        }
    }
}

/// Sleeps for this time; for ever if there is none.
async fn sleep_if_some(limit: Option<Duration>) {
    match limit {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

fn with_jitter(age: Duration) -> Duration {
    age.mul_f64(1.0 + AGE_JITTER_FRACTION * (2.0 * fastrand::f64() - 1.0))
}

/// Resolves when a connection that has sent nothing must close: at once to make room for another, a moment later in a drain. Its
/// client may be about to send its first call, and gets a GOAWAY then.
async fn wait_to_close_silent(entry: &ConnectionEntry) {
    entry.wait_for_leave_request().await;
    if !entry.is_leaving() {
        sleep(DRAIN_GREETING_TIMEOUT).await;
    }
}

/// Resolves when the connection must make room for another. A drain asks all connections to leave too, but closes none that
/// has a call.
async fn wait_to_make_room(entry: &ConnectionEntry) {
    entry.wait_for_leave_request().await;
    if !entry.is_leaving() {
        std::future::pending::<()>().await;
    }
}

fn log_end(peer: Option<SocketAddr>, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(peer = show(peer), %error, "connection failed");
    }
}

fn show(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string())
}
