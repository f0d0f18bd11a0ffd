//! Accepts connections: a bounded number at a time, and with a pause where the system has run out of descriptors.
//! When all places are taken, the oldest connection without a call that was let through makes room, or the one that has been
//! idle for longest. A client that does harm is not listened to any more.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::{Sleep, sleep},
};
use tokio_util::{
    either::Either,
    sync::{CancellationToken, WaitForCancellationFutureOwned},
};
use tracing::warn;

use crate::{
    config::ServerConfig,
    metrics::{Connections, OpenConnection},
    places::{Guest, Place, Places},
    tls::{Inside, Secured, Tls},
};

use super::{
    frames::{Frames, Harm, PREFACE},
    tarpit::{Hold, Tarpit},
};

/// How long to wait after an accept failed: at the descriptor limit it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take for the TLS handshake and the HTTP/2 preface. Later silence is for the keepalive to find.
const FIRST_BYTES: Duration = Duration::from_secs(10);

/// How often the log says that all places are taken, while they are.
const WARN_EVERY: Duration = Duration::from_mins(1);

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
    max_connections: usize,
    max_metadata_bytes: u64,
    warned: Option<Instant>,
    connections: Connections,
    tarpit: Arc<Tarpit>,
    pause: Option<Pin<Box<Sleep>>>,
}

type Accepted = Either<(TcpStream, SocketAddr), UnixStream>;
type Seating = Pin<Box<dyn Future<Output = Place> + Send>>;

/// A client's connection. It holds its place until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Either<Secured, UnixStream>,
    /// Runs until the client has said that it speaks HTTP/2.
    patience: Option<Pin<Box<Sleep>>>,
    received: usize,
    frames: Frames,
    tarpit: Arc<Tarpit>,
    /// Once it has done harm.
    held: Option<Hold>,
    peer: Option<SocketAddr>,
    asked_to_leave: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Who is woken when it is asked.
    wakes: Option<Waker>,
    _open: OpenConnection,
    place: Place,
}

impl Incoming {
    pub(super) fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        limits: &ServerConfig,
        connections: Connections,
        closing: &CancellationToken,
    ) -> Self {
        let (max_connections, max_metadata_bytes) = (limits.max_connections.get(), limits.max_metadata_bytes);
        connections.set_limit(max_connections);
        let places = Places::new(max_connections);
        let tarpit = Tarpit::new(closing.clone());
        Self {
            listener,
            tls,
            places,
            waiting: None,
            max_connections,
            max_metadata_bytes,
            warned: None,
            connections,
            tarpit,
            pause: None,
        }
    }

    /// Finds a place for a connection, at once or later.
    fn seat(&mut self, stream: Accepted) -> Option<Connection> {
        if let Some(place) = self.places.try_take() {
            return Some(self.connect(stream, place));
        }
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            warn!(
                limit = self.max_connections,
                "all places for connections are taken (server.max_connections); those that never called or are idle \
                 make room"
            );
        }
        self.waiting = Some((stream, Box::pin(self.places.clone().take())));
        None
    }

    fn connect(&self, stream: Accepted, place: Place) -> Connection {
        let (stream, peer) = match stream {
            Either::Left((stream, peer)) => {
                (Either::Left(Secured::new(stream, self.tls.as_deref(), Inside::Http2)), Some(peer))
            }
            // Who may open the socket's file is for the file system to say.
            Either::Right(stream) => (Either::Right(stream), None),
        };
        Connection {
            stream,
            patience: Some(Box::pin(sleep(FIRST_BYTES))),
            received: 0,
            frames: Frames::new(self.max_metadata_bytes),
            tarpit: self.tarpit.clone(),
            held: None,
            peer,
            asked_to_leave: Box::pin(place.guest.asked_to_leave()),
            wakes: None,
            _open: self.connections.opened(),
            place,
        }
    }
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = ready!(listener.poll_accept(context))?;
                // Small frames must not wait for each other. A socket that refuses this is broken anyway.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left((stream, peer)))
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

impl Incoming {
    /// The next connection. There is always a next one.
    pub(super) async fn next(&mut self) -> Connection {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Connection> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            if let Some((_, seating)) = &mut self.waiting {
                let place = ready!(seating.as_mut().poll(context));
                let (stream, _) = self.waiting.take().expect("it was there");
                return Poll::Ready(self.connect(stream, place));
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok(stream) => {
                    if let Some(connection) = self.seat(stream) {
                        return Poll::Ready(connection);
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again shortly");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

impl Connection {
    /// Whose it is.
    pub(super) fn guest(&self) -> &Arc<Guest> {
        &self.place.guest
    }

    /// Waits for the first byte. Fails as reading does.
    pub(super) async fn greeting(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            let readable = match &self.stream {
                Either::Left(stream) => stream.poll_readable(context),
                Either::Right(stream) => stream.poll_read_ready(context),
            };
            match readable {
                Poll::Pending => self.poll_patience(context),
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }

    /// Fails if nothing has come of it for too long, if it has been held for long enough, or if another needs its place more.
    /// Asked whenever there is nothing else to do.
    fn poll_patience<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let too_long = self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(context).is_ready());
        let held_enough = self.held.as_mut().is_some_and(|held| held.is_over(context));
        if too_long || held_enough || self.must_leave(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// Takes note of what has come, and of the harm in it.
    fn harm(&mut self, bytes: &[u8]) -> Option<Harm> {
        self.received = self.received.saturating_add(bytes.len());
        if self.received >= PREFACE {
            self.patience = None;
        }
        let guest = &self.place.guest;
        self.frames.harm(bytes, || guest.has_settled())
    }

    /// Whether another needs its place more. It is asked at each pause of a busy connection, which mostly wakes as before.
    fn must_leave(&mut self, context: &mut Context<'_>) -> bool {
        if self.wakes.as_ref().is_some_and(|wakes| wakes.will_wake(context.waker())) {
            return self.place.guest.is_leaving();
        }
        self.wakes = Some(context.waker().clone());
        self.asked_to_leave.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.held.is_some() {
            return self.poll_patience(context);
        }
        let filled = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => {
                self.frames.pause();
                self.poll_patience(context)
            }
            Poll::Ready(read) => {
                if let Some(harm) = self.harm(&buffer.filled()[filled..]) {
                    buffer.set_filled(filled);
                    self.held = Some(self.tarpit.hold(&self.place.guest, self.peer, harm));
                    return self.poll_patience(context);
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

    /// Not before the first byte has come: h2 asks once at the beginning how long a piece must be not to be copied, and copies
    /// up to 1 KiB for those who say no. So a short answer goes out in one write, and a long one is still not copied.
    fn is_write_vectored(&self) -> bool {
        self.received > 0 && self.stream.is_write_vectored()
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
