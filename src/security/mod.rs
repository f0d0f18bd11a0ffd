//! What protects the server's two doors: TLS and tokens, loaded together, renewed while it runs.

use std::{path::Path, sync::Arc, time::Duration};

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::config::{Config, ServerConfig};

mod exposure;
mod secrets;
mod tls;
mod tokens;

pub use exposure::{Exposed, Risk};
pub use secrets::{Leak, Secret, SecretsError, check_secret_access};
pub use tls::{Inside, Tls, TlsError};
pub use tokens::{Denied, Need, Role, TokenFileError, Tokens};

/// How often the files are looked at for a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SecurityError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error(transparent)]
    Exposed(#[from] Exposed),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
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
        check_secret_access(&config.server, &config.kinds, launcher)?;
        for secret in secrets::all(&config.server) {
            risks.extend(secret.loose_mode().map(|mode| Risk::Loose { secret, mode }));
        }
        Ok((security, risks))
    }

    fn open(config: &ServerConfig) -> Result<(Self, Vec<Risk>), SecurityError> {
        let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let tokens = config.tokens.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
        let risks = exposure::check(config)?;
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
