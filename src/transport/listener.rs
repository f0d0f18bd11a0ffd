//! Accepts connections while there are slots for them, and pauses when the process is out of descriptors.

use std::{
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{SocketFlags, accept_with},
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    task::yield_now,
    time::{Instant, sleep},
};
use tokio_util::{either::Either, sync::CancellationToken};
use tracing::warn;

use crate::{
    config::{Listen, ServerConfig},
    metrics::ConnectionMetrics,
    security::Tls,
};

use super::{
    connection::{GREETING_TIMEOUT, PendingConnection},
    limiter::{ConnectionLimiter, Slot},
};

/// Pause after a failed accept: at the descriptor limit the next one would fail at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Interval of the warning that all slots are taken.
const FULL_WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Connections that wait to be accepted. With the usual 128, the kernel drops some of a burst, and they retry after a second.
const LISTEN_BACKLOG: u32 = 4_096;

/// A socket and the address of its client, which Unix sockets do not have.
type AcceptedSocket = (Either<TcpStream, UnixStream>, Option<SocketAddr>);

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
    /// Connections that may still be accepted once the server drains.
    backlog_left: u32,
    /// Asks every connection to leave when it is cancelled.
    leave: CancellationToken,
}

impl Listener {
    /// Binds an address, and returns it with the port that the system has chosen.
    pub async fn bind(address: &Listen) -> io::Result<(Self, Listen)> {
        Ok(match address {
            Listen::Tcp(address) => {
                let listener = bind_tcp(*address)?;
                let bound = listener.local_addr()?;
                (Self::Tcp(listener), Listen::Tcp(bound))
            }
            Listen::Unix(path) => {
                remove_stale_socket(path).await;
                (Self::Unix(UnixListener::bind(path)?, path.clone()), address.clone())
            }
        })
    }

    async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(accepted_tcp(stream, peer))
            }
            // The permissions of the socket file protect it.
            Self::Unix(listener, _) => Ok((Either::Right(listener.accept().await?.0), None)),
        }
    }

    /// The next connection of the backlog, without waiting for one.
    fn accept_now(&self) -> Option<AcceptedSocket> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..LISTEN_BACKLOG {
            let accepted = match self {
                Self::Tcp(listener) => accept_with(listener, flags).map(adopt_tcp),
                Self::Unix(listener, _) => accept_with(listener, flags).map(adopt_unix),
            };
            match accepted {
                Ok(Ok(socket)) => return Some(socket),
                // The client has gone while it waited.
                Ok(Err(_)) | Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

fn accepted_tcp(stream: TcpStream, peer: SocketAddr) -> AcceptedSocket {
    // Small frames must not wait for each other. A socket on which this fails is broken anyway.
    let _ = stream.set_nodelay(true);
    (Either::Left(stream), Some(peer))
}

fn adopt_tcp(socket: OwnedFd) -> io::Result<AcceptedSocket> {
    let stream = TcpStream::from_std(socket.into())?;
    let peer = stream.peer_addr()?;
    Ok(accepted_tcp(stream, peer))
}

fn adopt_unix(socket: OwnedFd) -> io::Result<AcceptedSocket> {
    Ok((Either::Right(UnixStream::from_std(socket.into())?), None))
}

pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a server that has just stopped must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Removes the socket file of a server that was killed: connections to it are refused.
async fn remove_stale_socket(path: &Path) {
    let is_socket = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).await.is_err_and(is_refused) {
        let _ = std::fs::remove_file(path);
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
        let leave = CancellationToken::new();
        let limiter = ConnectionLimiter::new(max_connections, leave.clone());
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
            backlog_left: LISTEN_BACKLOG,
            leave,
        }
    }

    /// The next connection, once there is a slot for it; `None` when the server drains. Cancel-safe: a connection that waits
    /// for its slot is kept for the next call.
    pub(super) async fn next(&mut self) -> Option<PendingConnection> {
        let draining = self.draining.clone();
        if !draining.is_cancelled()
            && let Some(connection) = draining.run_until_cancelled_owned(self.accept()).await
        {
            return Some(connection);
        }
        // Other tasks run in between, however many connections wait.
        yield_now().await;
        self.accept_from_backlog()
    }

    /// Closes the listener. Returns the token that asks every connection to leave.
    pub(super) fn close(self) -> CancellationToken {
        self.leave
    }

    /// A connection that the kernel has accepted already: closing the listener would reset it.
    fn accept_from_backlog(&mut self) -> Option<PendingConnection> {
        self.backlog_left = self.backlog_left.checked_sub(1)?;
        self.accepted = self.accepted.take().or_else(|| self.listener.accept_now());
        let slot = self.accepted.as_ref().and_then(|_| self.limiter.try_acquire())?;
        Some(self.pending(slot))
    }

    async fn accept(&mut self) -> PendingConnection {
        let slot = loop {
            if self.accepted.is_some() {
                break self.acquire_slot().await;
            }
            match self.listener.accept().await {
                Ok(accepted) => self.accepted = Some(accepted),
                Err(error) => {
                    warn!(%error, "cannot accept a connection; retrying");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        };
        self.pending(slot)
    }

    fn pending(&mut self, slot: Slot) -> PendingConnection {
        let (socket, peer) = self.accepted.take().expect("a slot is acquired for an accepted socket");
        PendingConnection {
            socket,
            peer,
            tls: self.tls.clone(),
            greeting_deadline: Instant::now() + GREETING_TIMEOUT,
            stall_timeout: self.stall_timeout,
            slot,
            open: self.metrics.open(),
        }
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
