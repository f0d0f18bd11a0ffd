//! What a failed connection says about TLS: that only one side speaks it, or that one does not trust the other.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ClientError, Endpoint};

/// Why there is no understanding though both sides are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsTrouble {
    /// The server speaks TLS, we do not.
    OnlyServer,
    /// We speak TLS, the server does not.
    OnlyClient,
    /// The server's certificate is none that we trust.
    UnknownServer,
    /// Our certificate, or that we show none, may be what the server refuses.
    RefusedClient,
}

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How an alert of TLS begins.
const ALERT: u8 = 21;
const PATIENCE: Duration = Duration::from_secs(1);

impl TlsTrouble {
    /// Reads it out of the innermost error's text, which is all that the layers in between leave of it.
    pub(super) fn told_by(message: &str) -> Option<Self> {
        let beginnings = [
            ("invalid peer certificate", Self::UnknownServer),
            ("received corrupt message", Self::OnlyClient),
            ("received fatal alert", Self::RefusedClient),
        ];
        beginnings.into_iter().find(|(beginning, _)| message.starts_with(beginning)).map(|(_, trouble)| trouble)
    }
}

/// Finds out whether TLS is why a first call had no answer. A server that refuses us at its door hangs up, and what it says
/// before may be lost; so the beginning is made once more, if we do not speak TLS, and what comes back is looked at.
pub(super) async fn explain(at: &Endpoint, error: ClientError) -> ClientError {
    let ClientError::Lost { endpoint, message } = error else { return error };
    let trouble = match at.as_uri().strip_prefix("http://") {
        // Whatever else it may be: certificates of clients are refused only now.
        None if at.is_tls() => Some(TlsTrouble::RefusedClient),
        None => None,
        Some(address) => {
            let alerted = timeout(PATIENCE, first_byte(address)).await == Ok(Some(ALERT));
            alerted.then_some(TlsTrouble::OnlyServer)
        }
    };
    match trouble {
        Some(trouble) => ClientError::Tls { endpoint, message, trouble },
        None => ClientError::Lost { endpoint, message },
    }
}

async fn first_byte(address: &str) -> Option<u8> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(PREFACE).await.ok()?;
    stream.read_u8().await.ok()
}
