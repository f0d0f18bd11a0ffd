//! A TCP stream with or without TLS.

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

use crate::security::{Alpn, Tls};

/// A TCP stream with or without TLS. The handshake runs on the first read or write, so that a slow one does not delay the
/// accept loop.
pub enum MaybeTlsStream {
    Plain(TcpStream),
    Handshake(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed, and the operation that ran it returned the error.
    Failed,
}

impl fmt::Debug for MaybeTlsStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MaybeTlsStream").finish_non_exhaustive()
    }
}

impl MaybeTlsStream {
    #[must_use]
    pub fn new(stream: TcpStream, tls: Option<&Tls>, alpn: Alpn) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Handshake(Box::new(tls.acceptor(alpn).accept(stream))),
        }
    }

    /// Ready when data has arrived or the connection has ended.
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
            let handshake = ready!(Pin::new(&mut **handshake).poll(context));
            // A finished handshake must not be polled again, though the stream may be.
            *self = Self::Failed;
            *self = Self::Tls(Box::new(handshake?));
        }
        Poll::Ready(Ok(()))
    }
}

/// Runs an operation on the stream, after the handshake.
macro_rules! with_stream {
    ($this:expr, $context:expr, $stream:ident => $operation:expr) => {{
        let this = $this.get_mut();
        ready!(this.poll_handshake($context))?;
        match this {
            MaybeTlsStream::Plain($stream) => $operation,
            MaybeTlsStream::Tls(stream) => {
                let $stream = &mut **stream;
                $operation
            }
            MaybeTlsStream::Handshake(_) => Poll::Pending,
            MaybeTlsStream::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }};
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, context, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self, context, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self, context, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        // Both the socket and TLS implement vectored writes.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, context, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, context, stream => Pin::new(stream).poll_shutdown(context))
    }
}
