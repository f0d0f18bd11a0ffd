//! Translates between gRPC and the pool; decides nothing. The services implement the traits that tonic generates, and stand
//! behind the tower layers of `layers`.

pub mod proto;

mod codec;
mod convert;
mod encoding;
mod errors;
mod events;
mod fields;
mod health;
mod layers;
mod pool_admin;
mod pool_events;
mod request;
mod services;
mod worker_pool;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    metrics::Metrics,
    pool::Pool,
    security::Security,
    transport::{self, Acceptor, Listener},
};

pub use services::methods;

use layers::{Layers, Methods};
use services::Services;

/// How the gRPC side ends.
#[derive(Debug)]
pub struct Shutdown {
    /// Clients are to send no more calls here; open calls go on.
    pub draining: CancellationToken,
    /// Streams that have no end of their own, such as those of watchers, are to end.
    pub closing: CancellationToken,
}

/// Serves gRPC on `listener` until it drains and all calls have ended. The caller bounds the wait and drops this.
pub async fn serve(
    listener: Listener,
    pool: Pool,
    config: &Config,
    metrics: &Metrics,
    security: &Security,
    shutdown: Shutdown,
) {
    let limits = &config.server;
    let services = Services::new(&pool, config, &shutdown.closing);
    let acceptor = Acceptor::new(listener, security.tls.clone(), limits, metrics.connections(), shutdown.draining);
    let layers = Layers {
        methods: Arc::new(Methods::new(metrics, &methods())),
        tokens: security.tokens.clone(),
        request_timeout: limits.request_timeout,
    };
    let service = |connection| layers.wrap(services.clone(), connection);
    transport::serve(acceptor, limits, service).await;
}
