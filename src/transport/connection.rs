//! A client's socket: times out slow greetings and stalled writes, and gathers small writes.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Instant, Sleep, sleep, sleep_until, timeout_at},
};
use tokio_util::either::Either;

use crate::{
    metrics::ConnectionGuard,
    security::{Alpn, Tls},
};

use super::{
    limiter::Slot,
    tls::{MaybeTlsStream, accept_tls},
    write_pause::WritePause,
};

/// Time for the TLS handshake and the HTTP/2 preface. Later silence is detected by the keepalive.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the client to close its side after the server has closed its own.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a lingering connection discards before it is closed nonetheless.
const LINGER_MAX_BYTES: usize = 64 * 1024;
/// Length of the HTTP/2 connection preface.
const PREFACE_BYTES: usize = 24;

/// An accepted socket with its slot, before the TLS handshake.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub socket: Either<TcpStream, UnixStream>,
    /// `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    pub tls: Option<Arc<Tls>>,
    pub greeting_deadline: Instant,
    /// Bounds the time that the client may leave a write pending.
    pub stall_timeout: Duration,
    pub slot: Slot,
    pub open: ConnectionGuard,
}

impl PendingConnection {
    /// Waits for the first byte. Until then the connection costs no more than its socket.
    pub(super) async fn wait_for_first_byte(&self) -> io::Result<()> {
        let readable = async {
            match &self.socket {
                Either::Left(stream) => stream.readable().await,
                Either::Right(stream) => stream.readable().await,
            }
        };
        timeout_at(self.greeting_deadline, readable).await?
    }

    /// Performs the TLS handshake, if there is one.
    pub(super) async fn establish(self) -> io::Result<ClientConnection> {
        let socket = match self.socket {
            Either::Left(stream) => {
                let handshake = accept_tls(stream, self.tls.as_deref(), Alpn::Http2);
                Either::Left(timeout_at(self.greeting_deadline, handshake).await??)
            }
            Either::Right(stream) => Either::Right(stream),
        };
        Ok(ClientConnection {
            socket,
            greeting_timer: Some(Box::pin(sleep_until(self.greeting_deadline))),
            received: 0,
            write_pause: WritePause::default(),
            has_paused: false,
            stall_timer: None,
            stall_timeout: self.stall_timeout,
            linger: None,
            _slot: self.slot,
            _open: self.open,
        })
    }
}

/// An established connection. It keeps its slot until it is dropped.
#[derive(Debug)]
pub(super) struct ClientConnection {
    socket: Either<MaybeTlsStream, UnixStream>,
    /// Runs until the preface has arrived.
    greeting_timer: Option<Pin<Box<Sleep>>>,
    received: usize,
    write_pause: WritePause,
    /// True if the pause before the next write is over.
    has_paused: bool,
    /// Runs while the client does not read.
    stall_timer: Option<Pin<Box<Sleep>>>,
    stall_timeout: Duration,
    /// Set once the server's side is closed.
    linger: Option<Linger>,
    _slot: Slot,
    _open: ConnectionGuard,
}

/// Bounds of a connection whose server side is closed.
#[derive(Debug)]
struct Linger {
    timer: Pin<Box<Sleep>>,
    discarded: usize,
}

impl ClientConnection {
    /// Lets other tasks run once before a write, so that it also carries the responses of other calls.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.has_paused {
            ready!(self.write_pause.poll(context));
            self.has_paused = true;
        }
        Poll::Ready(())
    }

    /// Fails a write that has been pending for too long. HTTP/2's keepalive alone would wait for ever to send its GOAWAY.
    fn or_stalled<T>(&mut self, write: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.stall_timer = None;
            return write;
        }
        if let Some(timer) = &mut self.greeting_timer
            && timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let timeout = self.stall_timeout;
        let timer = self.stall_timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Discards what the client still sends, until it closes its side too. Closing a socket with unread bytes resets the
    /// connection, which would destroy a GOAWAY or a response that the client has not read yet.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Linger { timer: Box::pin(sleep(LINGER_TIMEOUT)), discarded: 0 });
        if linger.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut scratch = [0; 4096];
        while linger.discarded < LINGER_MAX_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            linger.discarded += buffer.filled().len();
        }
        Poll::Ready(())
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(timer) = &mut this.greeting_timer else {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        };
        let filled = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(context, buffer);
        if read.is_pending() {
            return timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        this.received = this.received.saturating_add(buffer.filled().len() - filled);
        if this.received >= PREFACE_BYTES {
            this.greeting_timer = None;
        }
        read
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pause(context));
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.or_stalled(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pause(context));
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.or_stalled(written, context)
    }

    /// False until the first byte has arrived. HTTP/2 asks once at its start: on false it copies pieces of up to 1 KiB into
    /// one buffer, so that a short response is one piece. Later writes are vectored nevertheless and copy nothing.
    fn is_write_vectored(&self) -> bool {
        self.received > 0 && self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_paused = false;
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.or_stalled(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}
