//! Translates between gRPC and the pool. The services implement the traits that tonic generates, behind the tower layers of
//! `layers`.

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
use tonic::{Response, Status};

use crate::{
    config::Config,
    metrics::Metrics,
    pool::Pool,
    security::Security,
    transport::{self, Acceptor, Listener},
};

pub use services::methods;

use layers::{LayerSettings, MethodTable};
use services::Services;

type Reply<T> = Result<Response<T>, Status>;

/// Signals that shut gRPC down in two steps.
#[derive(Debug)]
pub struct Shutdown {
    /// Clients get a GOAWAY; open calls continue.
    pub draining: CancellationToken,
    /// Streams without an end of their own, such as those of watchers, end.
    pub closing: CancellationToken,
}

/// Serves gRPC on `listener` until the server drains and all calls have ended. The caller bounds the wait and drops this.
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
    let layers = LayerSettings {
        methods: Arc::new(MethodTable::new(metrics, &methods())),
        tokens: security.tokens.clone(),
        request_timeout: limits.request_timeout,
    };
    let service = |connection| layers.wrap(services.clone(), connection);
    transport::serve(acceptor, limits, service).await;
}
