//! TCP streams with or without TLS.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::security::{Alpn, Tls};

pub type MaybeTlsStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Performs the handshake, unless the listener has no TLS. It takes as long as the client wants: the caller bounds it, and
/// does not wait for it in the accept loop.
pub async fn accept_tls(stream: TcpStream, tls: Option<&Tls>, alpn: Alpn) -> io::Result<MaybeTlsStream> {
    Ok(match tls {
        None => Either::Left(stream),
        Some(tls) => Either::Right(Box::new(tls.acceptor(alpn).accept(stream).await?)),
    })
}
