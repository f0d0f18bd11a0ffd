//! Accepts connections: a bounded number at a time, and with a pause where the system has run out of descriptors.
//! When all places are taken, the oldest connection without a call that was let through makes room.

use std::{
    future::Future,
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
    time::{Sleep, sleep},
};
use tokio_stream::Stream;
use tokio_util::{either::Either, sync::WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::{
    metrics::{Connections, OpenConnection},
    places::{Guest, Place, Places},
    tls::{Inside, Secured, Tls},
};

/// How long to wait after an accept failed: at the descriptor limit it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take for the TLS handshake and the HTTP/2 preface. Later silence is for the keepalive to find.
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
    tls: Option<Arc<Tls>>,
    places: Arc<Places>,
    /// The connection that was accepted last, while it waits for a place.
    waiting: Option<(Accepted, Seating)>,
    connections: Connections,
    pause: Option<Pin<Box<Sleep>>>,
}

type Accepted = Either<TcpStream, UnixStream>;
type Seating = Pin<Box<dyn Future<Output = Place> + Send>>;

/// A client's connection. It holds its place until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Either<Secured, UnixStream>,
    /// Runs until the client has said that it speaks HTTP/2.
    patience: Option<Pin<Box<Sleep>>>,
    received: usize,
    /// `None` once it has settled.
    asked_to_leave: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _open: OpenConnection,
    place: Place,
}

/// Whose call it is; settles with the first call that is let through.
#[derive(Debug, Clone)]
pub(super) struct Caller(pub Arc<Guest>);

impl Incoming {
    pub(super) fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        max_connections: usize,
        connections: Connections,
    ) -> Self {
        Self { listener, tls, places: Places::new(max_connections), waiting: None, connections, pause: None }
    }

    fn connect(&self, stream: Accepted, place: Place) -> Connection {
        let stream = match stream {
            Either::Left(stream) => Either::Left(Secured::new(stream, self.tls.as_deref(), Inside::Http2)),
            // Who may open the socket's file is for the file system to say.
            Either::Right(stream) => Either::Right(stream),
        };
        Connection {
            stream,
            patience: Some(Box::pin(sleep(FIRST_BYTES))),
            received: 0,
            asked_to_leave: Some(Box::pin(place.guest.asked_to_leave())),
            _open: self.connections.opened(),
            place,
        }
    }
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
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
            if let Some((_, seating)) = &mut self.waiting {
                let place = ready!(seating.as_mut().poll(context));
                let (stream, _) = self.waiting.take().expect("it was there");
                return Poll::Ready(Some(Ok(self.connect(stream, place))));
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok(stream) => self.waiting = Some((stream, Box::pin(self.places.clone().take()))),
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again shortly");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        Caller(self.place.guest.clone())
    }
}

impl Connection {
    /// Fails if nothing has come of it for too long, or if another needs its place more. Asked whenever there is nothing
    /// else to do.
    fn poll_patience<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.place.guest.has_settled() {
            self.asked_to_leave = None;
        }
        let too_long = self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(context).is_ready());
        let asked = self.asked_to_leave.as_mut().is_some_and(|asked| asked.as_mut().poll(context).is_ready());
        if too_long || asked {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_patience(context),
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
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.poll_patience(context),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, slices) {
            Poll::Pending => self.poll_patience(context),
            written @ Poll::Ready(_) => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.poll_patience(context),
            flushed @ Poll::Ready(_) => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
