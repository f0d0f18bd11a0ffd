//! Accepts connections while there are slots for them, and pauses when the process is out of descriptors.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, UnixListener},
    time::sleep,
};
use tokio_util::{either::Either, sync::CancellationToken};
use tracing::warn;

use crate::{
    config::ServerConfig,
    metrics::ConnectionMetrics,
    security::{Alpn, Tls},
};

use super::{
    connection::{AcceptedSocket, Connection},
    limiter::{ConnectionLimiter, Slot},
    tls::MaybeTlsStream,
};

/// Pause after a failed accept: at the descriptor limit the next one would fail at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Interval of the warning that all slots are taken.
const FULL_WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// A bound socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

/// Accepts connections as long as there are slots for them, until the server drains.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    limiter: Arc<ConnectionLimiter>,
    max_connections: usize,
    stall_timeout: Duration,
    metrics: ConnectionMetrics,
    last_warning: Option<Instant>,
    /// Accepted, waiting for a slot.
    accepted: Option<AcceptedSocket>,
    draining: CancellationToken,
}

impl Listener {
    async fn accept(&self, tls: Option<&Tls>) -> io::Result<AcceptedSocket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small frames must not wait for each other. A socket on which this fails is broken anyway.
                let _ = stream.set_nodelay(true);
                Ok((Either::Left(MaybeTlsStream::new(stream, tls, Alpn::Http2)), Some(peer)))
            }
            // File permissions decide who may open the socket.
            Self::Unix(listener, _) => Ok((Either::Right(listener.accept().await?.0), None)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Acceptor {
    #[must_use]
    pub fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        limits: &ServerConfig,
        metrics: ConnectionMetrics,
        draining: CancellationToken,
    ) -> Self {
        let max_connections = limits.max_connections.get();
        metrics.set_limit(max_connections);
        let limiter = ConnectionLimiter::new(max_connections, draining.clone());
        // The time after which the keepalive would give up: a client that does not read does not answer pings either.
        let stall_timeout = limits.keepalive_interval + limits.keepalive_timeout;
        Self {
            listener,
            tls,
            limiter,
            max_connections,
            stall_timeout,
            metrics,
            last_warning: None,
            accepted: None,
            draining,
        }
    }

    /// The next connection, once there is a slot for it; `None` when the server drains. Cancel-safe: a connection that waits
    /// for its slot is kept for the next call.
    pub(super) async fn next(&mut self) -> Option<Connection> {
        let draining = self.draining.clone();
        draining.run_until_cancelled_owned(self.accept()).await
    }

    async fn accept(&mut self) -> Connection {
        let slot = loop {
            if self.accepted.is_some() {
                break self.acquire_slot().await;
            }
            match self.listener.accept(self.tls.as_deref()).await {
                Ok(accepted) => self.accepted = Some(accepted),
                Err(error) => {
                    warn!(%error, "cannot accept a connection; retrying");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        };
        let accepted = self.accepted.take().expect("a slot is acquired for an accepted socket");
        Connection::new(accepted, slot, self.metrics.open(), self.stall_timeout)
    }

    async fn acquire_slot(&mut self) -> Slot {
        if let Some(slot) = self.limiter.try_acquire() {
            return slot;
        }
        self.warn_full();
        self.limiter.clone().acquire().await
    }

    fn warn_full(&mut self) {
        if self.last_warning.is_none_or(|at| at.elapsed() >= FULL_WARNING_INTERVAL) {
            self.last_warning = Some(Instant::now());
            warn!(
                limit = self.max_connections,
                "connection limit reached (server.max_connections); closing idle connections"
            );
        }
    }
}
