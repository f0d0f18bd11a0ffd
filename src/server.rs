//! Builds the parts of the server, runs them, and shuts them down in order.

mod memory;

use std::{io, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    api,
    broker::{Broker, MemoryLimits},
    config::{self, Config, Listen},
    http,
    metrics::Metrics,
    pool::{DrainReport, Pool, PoolParams, Reloader, StopSignals},
    security::{Security, SecurityError},
    transport::{Listener, bind_tcp},
};

/// Time for clients to read the ends of their streams, and for background tasks to end, once every query has ended. Shorter
/// if the deadline of the stop is earlier, but never shorter than the minimum.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSE_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// Time before the deadline of the stop that is kept for flushing spans and log lines.
const FLUSH_RESERVE: Duration = Duration::from_millis(100);

/// Signals within this time count as one: some programs signal both the process and its group.
const DUPLICATE_SIGNAL_WINDOW: Duration = Duration::from_millis(200);

/// Reason that the server could not start.
#[derive(Debug, Error)]
pub enum ServerError {
    #[error("cannot listen for gRPC on {address}: {error}{}", listen_hint(.error))]
    Listen { address: Listen, error: io::Error },
    #[error("cannot listen for HTTP on {address}: {error}{}", listen_hint(.error))]
    Http { address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error("cannot set up the pool: {0}")]
    Pool(io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another remuda running? choose another address with --listen and --http",
        io::ErrorKind::PermissionDenied => "; ports below 1024 and the directories of others need privileges",
        _ => "",
    }
}

/// Addresses that a server listens on.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// In the form of a client's endpoint: `127.0.0.1:50051` or `unix:/path`.
    pub grpc: String,
    pub http: Option<SocketAddr>,
}

/// A server with bound sockets, ready to run.
#[derive(Debug)]
pub struct Server {
    config: Config,
    security: Security,
    metrics: Arc<Metrics>,
    broker: Broker,
    pool: Pool,
    supervisor: crate::pool::Supervisor,
    grpc: Listener,
    http: Option<TcpListener>,
    addresses: Addresses,
}

impl Server {
    /// Binds the sockets and builds the parts. `launcher` is our own binary, `reloader` reads the configuration again.
    pub async fn bind(config: Config, launcher: PathBuf, reloader: Option<Reloader>) -> Result<Self, ServerError> {
        let (security, risks) = Security::load(&config, &launcher)?;
        for risk in risks {
            warn!("{risk}");
        }
        let address = &config.server.listen;
        let bound = Listener::bind(address).await;
        let (grpc, grpc_address) = bound.map_err(|error| ServerError::Listen { address: address.clone(), error })?;
        let http = config.server.http.map(|address| {
            let bound = bind_tcp(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
            bound.map_err(|error| ServerError::Http { address, error })
        });
        let (http_address, http) = http.transpose()?.unzip();
        let metrics = Arc::new(Metrics::new());
        // Registers the series of all methods, so that they are in the first scrape.
        let _ = metrics.methods(&api::methods());
        let broker = Broker::memory(limits(&config), metrics.query.clone());
        let params = PoolParams {
            environment: config::worker_environment,
            reloader,
            config: config.clone(),
            broker: broker.clone(),
            metrics: metrics.clone(),
            launcher,
        };
        let (pool, supervisor) = Pool::new(params).map_err(ServerError::Pool)?;
        let addresses = Addresses { grpc: grpc_address.to_string(), http: http_address };
        Ok(Self { config, security, metrics, broker, pool, supervisor, grpc, http, addresses })
    }

    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT, then drains. A second signal stops at once. SIGHUP reloads the configuration.
    pub async fn run(self) -> Result<DrainReport, ServerError> {
        let stop = StopSignals::default();
        let signals = watch_signals(stop.clone()).map_err(ServerError::Signals)?;
        let reloads = reload_on_signal(self.pool.clone(), self.security.clone()).map_err(ServerError::Signals)?;
        let drained = self.run_until(stop).await;
        signals.abort();
        reloads.abort();
        drained
    }

    /// Serves until `stop` is signalled.
    pub async fn run_until(self, stop: StopSignals) -> Result<DrainReport, ServerError> {
        let close = CancellationToken::new();
        let broker_task = tokio::spawn({
            let (broker, close) = (self.broker.clone(), close.clone());
            async move { broker.run(close).await }
        });
        let security_task = tokio::spawn(self.security.clone().watch(close.clone()));
        let memory_task = tokio::spawn(memory::trim_until(close.clone()));
        let http_task = self.http.map(|listener| {
            let config = &self.config.server;
            let access = http::HttpAccess {
                tls: self.security.tls.clone().filter(|_| config.http_tls),
                tokens: self.security.tokens.clone(),
                open_paths: config.http_open_paths.clone().into(),
                max_connections: config.max_http_connections.get(),
            };
            tokio::spawn(http::serve(listener, self.pool.clone(), access, close.clone().cancelled_owned()))
        });
        let mut grpc = Box::pin(async {
            let shutdown = api::Shutdown { draining: stop.go_away.clone(), closing: close.clone() };
            api::serve(self.grpc, self.pool.clone(), &self.config, &self.metrics, &self.security, shutdown).await;
            stop.disconnected.cancel();
            close.cancelled().await;
        });
        let http_address = self.addresses.http.map_or_else(|| "off".to_owned(), |address| address.to_string());
        info!(grpc = %self.addresses.grpc, http = http_address, "serving");
        let mut supervising = tokio::spawn(self.supervisor.run(stop.clone()));
        let drained = tokio::select! {
            drained = &mut supervising => drained.expect("the supervisor does not panic"),
            () = &mut grpc => unreachable!("it serves until `close` is cancelled"),
        };
        close.cancel();
        let now = Instant::now();
        let deadline = (now + CLOSE_TIMEOUT).min(drained.end - FLUSH_RESERVE).max(now + CLOSE_TIMEOUT_MIN);
        // Dropping the server closes the connections of clients that do not read their streams to the end.
        let _ = timeout_at(deadline, &mut grpc).await;
        drop(grpc);
        for task in [http_task, Some(broker_task), Some(security_task), Some(memory_task)].into_iter().flatten() {
            join_or_abort(task, deadline).await;
        }
        Ok(drained)
    }
}

async fn join_or_abort(mut task: JoinHandle<()>, deadline: Instant) {
    if timeout_at(deadline, &mut task).await.is_err() {
        task.abort();
    }
}

pub(crate) fn limits(config: &Config) -> MemoryLimits {
    let bytes = |size| usize::try_from(size).unwrap_or(usize::MAX);
    MemoryLimits {
        max_queries: config.queue.max_queries.get(),
        max_waiting_bytes: bytes(config.queue.max_bytes),
        max_events: config.results.max_events.get(),
        max_bytes: bytes(config.results.max_bytes),
        overflow: config.results.overflow,
        max_stall: config.results.max_stall,
        retention: config.results.retention,
        max_ended: config.results.max_ended.get(),
        max_ended_bytes: bytes(config.results.max_total_bytes),
        max_dead: config.dead_letters.max,
        max_dead_bytes: bytes(config.dead_letters.max_bytes),
        max_dead_age: config.dead_letters.max_age,
        aging: config.queue.aging,
        max_queries_per_owner: config.queue.max_queries_per_owner.map(NonZeroUsize::get),
        max_running_per_owner: config.queue.max_running_per_owner.map(NonZeroUsize::get),
    }
}

fn reload_on_signal(pool: Pool, security: Security) -> io::Result<JoinHandle<()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            security.reload();
            match pool.operations().reload(false).await {
                Ok(reload) => info!(changes = reload.changes.len(), "reloaded on SIGHUP"),
                Err(error) => error!("reload on SIGHUP failed: {error}"),
            }
        }
    }))
}

fn watch_signals(stop: StopSignals) -> io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut next = async move || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    Ok(tokio::spawn(async move {
        let first = next().await;
        info!(signal = first, "stopping when accepted queries have ended; a second signal stops at once");
        stop.drain.cancel();
        let begun = Instant::now();
        let mut second = next().await;
        while begun.elapsed() < DUPLICATE_SIGNAL_WINDOW {
            second = next().await;
        }
        warn!(signal = second, "stopping at once");
        stop.now.cancel();
    }))
}
