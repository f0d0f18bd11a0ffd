//! Refuses listeners that other machines can reach unprotected, and names the risks of the others.

use std::net::SocketAddr;

use thiserror::Error;

use crate::config::{Listen, ServerConfig};

use super::secrets::Secret;

/// A listener that other machines can reach and nothing protects.
#[derive(Debug, Error)]
#[error(
    "{key} = \"{address}\" can be reached from other machines, and nothing protects it: set server.tls_cert and \
     server.tls_key, or server.tokens, or bind it to 127.0.0.1; if the network itself is safe, set \
     server.allow_insecure = true"
)]
pub struct ExposedListener {
    key: &'static str,
    address: SocketAddr,
}

/// A risk that the configuration allows, and of which the operator is warned.
#[derive(Debug, Error)]
pub enum Risk {
    #[error(
        "{key} = \"{address}\" is open to other machines without TLS or tokens (server.allow_insecure): every client is let \
         in; to protect it, set server.tls_cert and server.tls_key, or server.tokens"
    )]
    Unprotected { key: &'static str, address: SocketAddr },
    #[error("{key} = \"{address}\" is open to other machines without TLS: tokens can be read on the way; set {remedy}")]
    Unencrypted { key: &'static str, address: SocketAddr, remedy: &'static str },
    #[error("{} can be read or written by others (its mode is {mode:03o}); chmod 600 ({})", .secret.path.display(), .secret.key)]
    LoosePermissions { secret: Secret, mode: u32 },
}

/// Refuses unprotected listeners, unless the configuration allows them, and returns the risks of the others.
pub(super) fn check(config: &ServerConfig) -> Result<Vec<Risk>, ExposedListener> {
    let has_tls = config.tls().is_some();
    let listen = match &config.listen {
        Listen::Tcp(address) => Some(("server.listen", *address, has_tls)),
        Listen::Unix(_) => None,
    };
    let http = config.http.map(|address| ("server.http", address, has_tls && config.http_tls));
    let mut risks = Vec::new();
    for (key, address, encrypted) in listen.into_iter().chain(http) {
        if encrypted || address.ip().is_loopback() {
            continue;
        }
        risks.push(match config.tokens.is_some() {
            false if !config.allow_insecure => return Err(ExposedListener { key, address }),
            false => Risk::Unprotected { key, address },
            true if has_tls => Risk::Unencrypted { key, address, remedy: "server.http_tls = true" },
            true => Risk::Unencrypted { key, address, remedy: "server.tls_cert and server.tls_key" },
        });
    }
    Ok(risks)
}
