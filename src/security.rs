//! What protects the server's two doors: TLS and tokens, loaded together, renewed while it runs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    auth::{TokenFileError, Tokens},
    config::{Listen, ServerConfig},
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
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Security {
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
}

impl Security {
    /// Loads what the configuration asks for, and refuses to stand open to the world.
    pub fn load(config: &ServerConfig) -> Result<Self, SecurityError> {
        let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let tokens = config.tokens.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
        let security = Self { tls, tokens };
        if let Listen::Tcp(address) = &config.listen {
            security.check("server.listen", *address, config)?;
        }
        if let Some(address) = config.http {
            security.check("server.http", address, config)?;
        }
        Ok(security)
    }

    fn check(&self, key: &'static str, address: SocketAddr, config: &ServerConfig) -> Result<(), SecurityError> {
        if address.ip().is_loopback() {
            return Ok(());
        }
        let encrypted = self.tls.is_some() && (key == "server.listen" || config.http_tls);
        match (encrypted, self.tokens.is_some()) {
            (false, false) if !config.allow_insecure => Err(SecurityError::Exposed { key, address }),
            (false, false) => {
                warn!(%address, "{key} is open to other machines without TLS or tokens (server.allow_insecure)");
                Ok(())
            }
            (false, true) => {
                warn!(%address, "{key} is open to other machines without TLS: tokens can be read on the way");
                Ok(())
            }
            (true, _) => Ok(()),
        }
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
