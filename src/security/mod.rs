//! Protection of the gRPC and HTTP listeners: TLS and tokens, loaded together and reloaded while the server runs.

mod exposure;
mod reloadable;
mod secrets;
mod tls;
mod tokens;

use std::{error::Error as StdError, path::Path, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::config::Config;

pub use exposure::{ExposedListener, Risk};
pub use secrets::{Secret, SecretsError, check_secret_access};
pub use tls::{Alpn, Tls, TlsError};
pub use tokens::{AuthError, RequiredRole, Role, TokenFileError, Tokens};

/// Interval at which the files are checked for changes.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SecurityError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error(transparent)]
    Exposed(#[from] ExposedListener),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

/// Certificates and tokens of a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Security {
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
}

impl Security {
    /// Loads the files that the configuration names. Fails if a listener would be exposed or workers could read the server's
    /// secrets; lesser risks are returned. `launcher` is our own binary.
    pub fn load(config: &Config, launcher: &Path) -> Result<(Self, Vec<Risk>), SecurityError> {
        let tls = config.server.tls().map(Tls::load).transpose()?.map(Arc::new);
        let tokens = config.server.tokens.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
        let mut risks = exposure::check(&config.server)?;
        check_secret_access(&config.server, &config.kinds, launcher)?;
        for secret in secrets::all(&config.server) {
            risks.extend(secret.loose_mode().map(|mode| Risk::LoosePermissions { secret, mode }));
        }
        Ok((Self { tls, tokens }, risks))
    }

    /// Reads the files again. What cannot be used is logged, and the current certificates or tokens stay.
    pub fn reload(&self) {
        if let Some(tls) = &self.tls {
            log_reload("certificate", tls.reload());
        }
        if let Some(tokens) = &self.tokens {
            log_reload("token", tokens.reload());
        }
    }

    /// Reloads when files change, until `stop` is cancelled.
    pub async fn watch(self, stop: CancellationToken) {
        if self.tls.is_none() && self.tokens.is_none() {
            return;
        }
        while stop.run_until_cancelled(sleep(FILE_CHECK_INTERVAL)).await.is_some() {
            let stale = self.tls.as_ref().is_some_and(|tls| tls.is_stale())
                || self.tokens.as_ref().is_some_and(|tokens| tokens.is_stale());
            if stale {
                let security = self.clone();
                let _ = spawn_blocking(move || security.reload()).await;
            }
        }
    }
}

fn log_reload(subject: &str, reloaded: Result<(), impl StdError>) {
    match reloaded {
        Ok(()) => info!("{subject}s reloaded"),
        Err(error) => error!("{subject} reload failed, keeping the current ones: {error}"),
    }
}
