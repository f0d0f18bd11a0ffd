//! What protects the server's two doors: TLS and tokens, loaded together, renewed while it runs.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    auth::{TokenFileError, Tokens},
    config::{Config, Listen, ServerConfig},
    secrets::{self, Secret, SecretsError},
    tls::{Tls, TlsError},
};

/// How often the files are looked at for a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SecurityError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error(
        "{key} = \"{address}\" can be reached from other machines, and nothing protects it: set server.tls_cert and \
         server.tls_key, or server.tokens, or bind it to 127.0.0.1; if the network itself is safe, set \
         server.allow_insecure = true"
    )]
    Exposed { key: &'static str, address: SocketAddr },
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

/// What the operator may have meant, and should know of.
#[derive(Debug, Error)]
pub enum Risk {
    #[error(
        "{key} = \"{address}\" is open to other machines without TLS or tokens (server.allow_insecure): whoever reaches it is let \
         in; to protect it, set server.tls_cert and server.tls_key, or server.tokens"
    )]
    Open { key: &'static str, address: SocketAddr },
    #[error("{key} = \"{address}\" is open to other machines without TLS: tokens can be read on the way; set {remedy}")]
    Overheard { key: &'static str, address: SocketAddr, remedy: &'static str },
    #[error("{} can be read or written by others (its mode is {mode:03o}); chmod 600 ({})", .secret.path.display(), .secret.key)]
    Loose { secret: Secret, mode: u32 },
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Security {
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
}

impl Security {
    /// Loads what the configuration asks for, and refuses to stand open to the world or to its workers. Tells what is risky
    /// nonetheless. `launcher` is our own binary.
    pub fn load(config: &Config, launcher: &Path) -> Result<(Self, Vec<Risk>), SecurityError> {
        let (security, mut risks) = Self::open(&config.server)?;
        secrets::keep(&config.server, &config.kinds, launcher)?;
        for secret in secrets::of(&config.server) {
            risks.extend(secrets::loose_mode(&secret).map(|mode| Risk::Loose { secret, mode }));
        }
        Ok((security, risks))
    }

    fn open(config: &ServerConfig) -> Result<(Self, Vec<Risk>), SecurityError> {
        let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let tokens = config.tokens.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
        let listen = match &config.listen {
            Listen::Tcp(address) => Some(("server.listen", *address, tls.is_some())),
            Listen::Unix(_) => None,
        };
        let http = config.http.map(|address| ("server.http", address, tls.is_some() && config.http_tls));
        let mut risks = Vec::new();
        for (key, address, encrypted) in listen.into_iter().chain(http) {
            if encrypted || address.ip().is_loopback() {
                continue;
            }
            risks.push(match &tokens {
                None if !config.allow_insecure => return Err(SecurityError::Exposed { key, address }),
                None => Risk::Open { key, address },
                Some(_) if tls.is_some() => Risk::Overheard { key, address, remedy: "server.http_tls = true" },
                Some(_) => Risk::Overheard { key, address, remedy: "server.tls_cert and server.tls_key" },
            });
        }
        Ok((Self { tls, tokens }, risks))
    }

    /// Reads the files again. What cannot be used is told, and what was in force stays in force.
    pub fn reload(&self) {
        if let Some(tls) = &self.tls {
            match tls.reload() {
                Ok(()) => info!("certificates reloaded"),
                Err(error) => error!("the certificates in force stay in force: {error}"),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.reload() {
                Ok(()) => info!("tokens reloaded"),
                Err(error) => error!("the tokens in force stay in force: {error}"),
            }
        }
    }

    /// Renews what has changed on disk, until told to stop.
    pub async fn watch(self, stop: CancellationToken) {
        if self.tls.is_none() && self.tokens.is_none() {
            return;
        }
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let stale = self.tls.as_ref().is_some_and(|tls| tls.is_stale())
                || self.tokens.as_ref().is_some_and(|tokens| tokens.is_stale());
            if stale {
                let security = self.clone();
                let _ = tokio::task::spawn_blocking(move || security.reload()).await;
            }
        }
    }
}
