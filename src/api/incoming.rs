//! Accepts connections: a bounded number at a time, and with a pause where the system has run out of descriptors.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tokio_stream::Stream;
use tokio_util::{either::Either, sync::PollSemaphore};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::metrics::{Connections, OpenConnection};

/// How long to wait after an accept failed: at the descriptor limit it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take to send the HTTP/2 preface. Later silence is for the keepalive to find.
const FIRST_BYTES: Duration = Duration::from_secs(10);
const PREFACE: usize = 24;

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

/// The connections of a listener, never more than a number at a time.
pub(super) struct Incoming {
    listener: Listener,
    slots: PollSemaphore,
    slot: Option<OwnedSemaphorePermit>,
    connections: Connections,
    pause: Option<Pin<Box<Sleep>>>,
}

/// A client's connection. It holds its slot until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Either<TcpStream, UnixStream>,
    /// Runs until the client has said that it speaks HTTP/2.
    patience: Option<Pin<Box<Sleep>>>,
    received: usize,
    _open: OpenConnection,
    _slot: OwnedSemaphorePermit,
}

impl Incoming {
    pub(super) fn new(listener: Listener, max_connections: usize, connections: Connections) -> Self {
        let slots = PollSemaphore::new(Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))));
        Self { listener, slots, slot: None, connections, pause: None }
    }
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Either<TcpStream, UnixStream>>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => {
                let (stream, _) = ready!(listener.poll_accept(context))?;
                // Small frames must not wait for each other. A socket that refuses this is broken anyway.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left(stream))
            }
            Self::Unix(listener, _) => ready!(listener.poll_accept(context)).map(|(stream, _)| Either::Right(stream)),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            if self.slot.is_none() {
                self.slot = ready!(self.slots.poll_acquire(context));
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok(stream) => {
                    let slot = self.slot.take().expect("a slot was acquired");
                    let patience = Some(Box::pin(sleep(FIRST_BYTES)));
                    let open = self.connections.opened();
                    let connection = Connection { stream, patience, received: 0, _open: open, _slot: slot };
                    return Poll::Ready(Some(Ok(connection)));
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again shortly");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => {
                if let Some(patience) = &mut self.patience {
                    ready!(patience.as_mut().poll(context));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending
            }
            Poll::Ready(read) => {
                self.received = self.received.saturating_add(buffer.filled().len() - filled);
                if self.received >= PREFACE {
                    self.patience = None;
                }
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
