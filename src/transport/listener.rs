//! Accepts connections: a bounded number at a time, and with a pause where the system has run out of descriptors.

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
    metrics::Connections,
    security::{Inside, Tls},
};

use super::{
    connection::{Accepted, Connection},
    limiter::{ConnectionLimiter, Slot},
    tls::Secured,
};

/// Pause after a failed accept: at the descriptor limit the next one would fail at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Interval of the log line that says that all slots are taken.
const WARN_INTERVAL: Duration = Duration::from_mins(1);

/// A bound socket that connections arrive at.
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
    metrics: Connections,
    warned: Option<Instant>,
    /// Accepted, and without a slot so far.
    accepted: Option<Accepted>,
    draining: CancellationToken,
}

impl Listener {
    async fn accept(&self, tls: Option<&Tls>) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small frames must not wait for each other. A socket that refuses this is broken anyway.
                let _ = stream.set_nodelay(true);
                Ok((Either::Left(Secured::new(stream, tls, Inside::Http2)), Some(peer)))
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
        metrics: Connections,
        draining: CancellationToken,
    ) -> Self {
        let max_connections = limits.max_connections.get();
        metrics.set_limit(max_connections);
        let limiter = ConnectionLimiter::new(max_connections, draining.clone());
        // A client that is alive but takes nothing answers no ping either.
        let stall_timeout = limits.keepalive_interval + limits.keepalive_timeout;
        Self { listener, tls, limiter, max_connections, stall_timeout, metrics, warned: None, accepted: None, draining }
    }

    /// The next connection, once there is a slot for it; `None` when the server drains. Nothing is lost if this is dropped: a
    /// connection that waits for its slot is kept for the next call.
    pub(super) async fn next(&mut self) -> Option<Connection> {
        let draining = self.draining.clone();
        draining.run_until_cancelled_owned(self.accept()).await
    }

    async fn accept(&mut self) -> Connection {
        let slot = loop {
            if self.accepted.is_some() {
                break self.slot().await;
            }
            match self.listener.accept(self.tls.as_deref()).await {
                Ok(accepted) => self.accepted = Some(accepted),
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again shortly");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        };
        let accepted = self.accepted.take().expect("a slot is taken for one that was accepted");
        Connection::new(accepted, slot, self.metrics.opened(), self.stall_timeout)
    }

    async fn slot(&mut self) -> Slot {
        if let Some(slot) = self.limiter.try_acquire() {
            return slot;
        }
        self.warn_full();
        self.limiter.clone().acquire().await
    }

    fn warn_full(&mut self) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            warn!(
                limit = self.max_connections,
                "all connections are taken (server.max_connections); those without a call make room"
            );
        }
    }
}
