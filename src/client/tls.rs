//! Failed connections whose cause is TLS: only one side speaks it, or one does not trust the other.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ClientError, Endpoint};

/// A disagreement about TLS between a client and a server that are both there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMismatch {
    /// The server speaks TLS, this client does not.
    OnlyServer,
    /// This client speaks TLS, the server does not.
    OnlyClient,
    /// This client does not trust the server's certificate.
    UnknownServer,
    /// The server may refuse this client's certificate, or the lack of one.
    RefusedClient,
}

/// The first bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS alert.
const TLS_ALERT: u8 = 21;
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl TlsMismatch {
    /// Finds it in the innermost error's text: the layers in between keep nothing else of it.
    pub(super) fn from_message(message: &str) -> Option<Self> {
        let beginnings = [
            ("invalid peer certificate", Self::UnknownServer),
            ("received corrupt message", Self::OnlyClient),
            ("received fatal alert", Self::RefusedClient),
        ];
        beginnings.into_iter().find(|(beginning, _)| message.starts_with(beginning)).map(|(_, mismatch)| mismatch)
    }
}

/// Turns a lost first call into a TLS error if TLS is the cause. A server that refuses the handshake closes the connection, and
/// its alert may be lost. So without TLS a second connection sends the HTTP/2 preface and looks for a TLS alert.
pub(super) async fn explain(at: &Endpoint, error: ClientError) -> ClientError {
    let ClientError::Lost { endpoint, message } = error else { return error };
    let mismatch = match at.as_uri().strip_prefix("http://") {
        // With TLS 1.3 the server refuses a client's certificate only after the handshake.
        None if at.is_tls() => Some(TlsMismatch::RefusedClient),
        None => None,
        Some(address) => {
            let alerted = timeout(PROBE_TIMEOUT, first_byte(address)).await == Ok(Some(TLS_ALERT));
            alerted.then_some(TlsMismatch::OnlyServer)
        }
    };
    match mismatch {
        Some(mismatch) => ClientError::Tls { endpoint, message, mismatch },
        None => ClientError::Lost { endpoint, message },
    }
}

async fn first_byte(address: &str) -> Option<u8> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(HTTP2_PREFACE).await.ok()?;
    stream.read_u8().await.ok()
}
