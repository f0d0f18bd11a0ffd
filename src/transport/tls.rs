//! A TCP stream that may be under TLS, with the handshake on its first use.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{Accept, server::TlsStream};

use crate::security::{Inside, Tls};

/// A connection that may be under TLS. The handshake takes place as it is first read or written, so that nobody else waits
/// for it.
pub enum Secured {
    Plain(TcpStream),
    Handshake(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed, which was told to whoever read or wrote.
    Failed,
}

impl fmt::Debug for Secured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Handshake(_) => "Handshake",
            Self::Tls(_) => "Tls",
            Self::Failed => "Failed",
        })
    }
}

impl Secured {
    #[must_use]
    pub fn new(stream: TcpStream, tls: Option<&Tls>, inside: Inside) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Handshake(Box::new(tls.acceptor(inside).accept(stream))),
        }
    }

    /// Ready when something has come, or the connection has ended.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Handshake(handshake) => {
                handshake.get_ref().map_or(Poll::Ready(Ok(())), |stream| stream.poll_read_ready(context))
            }
            Self::Tls(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Handshake(handshake) = self {
            let ended = ready!(Pin::new(&mut **handshake).poll(context));
            // A handshake that has ended must not be polled again, though the stream may be.
            *self = Self::Failed;
            *self = Self::Tls(Box::new(ended?));
        }
        Poll::Ready(Ok(()))
    }
}

/// Runs an operation on whatever the stream is by then.
macro_rules! on_stream {
    ($this:expr, $context:expr, $stream:ident => $operation:expr) => {{
        let this = $this.get_mut();
        ready!(this.poll_handshake($context))?;
        match this {
            Secured::Plain($stream) => $operation,
            Secured::Tls(stream) => {
                let $stream = &mut **stream;
                $operation
            }
            Secured::Handshake(_) => Poll::Pending,
            Secured::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }};
}

impl AsyncRead for Secured {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, context, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Secured {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, context, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, context, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        // Both the socket and TLS gather what they are given.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, context, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, context, stream => Pin::new(stream).poll_shutdown(context))
    }
}
