//! Translates between gRPC and the pool; decides nothing. The services implement the traits that tonic generates, and stand
//! behind the tower layers of `layers`.

pub mod client;
pub mod proto;

mod codec;
mod convert;
mod encoding;
mod errors;
mod events;
mod floor;
mod health;
mod layers;
mod pool_admin;
mod pool_events;
mod request;
mod worker_pool;

use std::sync::Arc;

use prost::Message;
use prost_types::FileDescriptorSet;
use tokio_util::sync::CancellationToken;
use tonic::{codec::CompressionEncoding, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use crate::{
    config::{Compression, Config},
    metrics::Metrics,
    pool::Pool,
    security::Security,
    transport::{self, Acceptor, Listener},
};

pub use floor::{FloorError, serve_floor};

use health::HealthService;
use layers::{Layers, Methods};
use pool_admin::PoolAdminService;
use proto::services::{pool_admin_server::PoolAdminServer, worker_pool_server::WorkerPoolServer};
use worker_pool::WorkerPoolService;

/// Room for the parts of an event beyond the line that it came from: names, numbers, a certificate.
const EVENT_OVERHEAD_BYTES: u64 = 64 * 1024;

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
    let routes = routes(&pool, config, &shutdown.closing);
    let acceptor = Acceptor::new(listener, security.tls.clone(), limits, metrics.connections(), shutdown.draining);
    let layers = Layers {
        methods: Arc::new(Methods::new(metrics, &methods())),
        tokens: security.tokens.clone(),
        request_timeout: limits.request_timeout,
    };
    let service = |connection| layers.wrap(routes.clone(), connection);
    transport::serve(acceptor, limits, service).await;
}

/// Limits and compression of every service.
macro_rules! configured {
    ($server:expr, $sizes:expr, $compression:expr) => {{
        let mut server = $server
            .max_decoding_message_size($sizes.receive)
            .max_encoding_message_size($sizes.send)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        for compression in $compression {
            server = server.send_compressed(match compression {
                Compression::Gzip => CompressionEncoding::Gzip,
                Compression::Zstd => CompressionEncoding::Zstd,
            });
        }
        server
    }};
}

/// The longest messages, in bytes.
struct MessageSizes {
    receive: usize,
    send: usize,
}

impl MessageSizes {
    fn new(config: &Config) -> Self {
        let longest_line = config.kinds.iter().map(|kind| kind.max_line_bytes).max().unwrap_or_default();
        let send = longest_line.max(config.server.max_message_bytes).saturating_add(EVENT_OVERHEAD_BYTES);
        let bytes = |size| usize::try_from(size).unwrap_or(usize::MAX);
        Self { receive: bytes(config.server.max_message_bytes), send: bytes(send) }
    }
}

/// All services.
fn routes(pool: &Pool, config: &Config, closing: &CancellationToken) -> Routes {
    let (sizes, compression) = (MessageSizes::new(config), &config.server.compression);
    let worker_pool = WorkerPoolServer::new(WorkerPoolService { pool: pool.clone() });
    let pool_admin = PoolAdminServer::new(PoolAdminService { pool: pool.clone(), closing: closing.clone() });
    let health = HealthServer::new(HealthService { pool: pool.clone(), closing: closing.clone() });
    // Both versions of reflection: older clients know only the first.
    let reflection_v1alpha = reflection().build_v1alpha().expect("the built-in descriptors are valid");
    let reflection_v1 = reflection().build_v1().expect("the built-in descriptors are valid");
    Routes::new(configured!(worker_pool, sizes, compression))
        .add_service(configured!(pool_admin, sizes, compression))
        .add_service(configured!(health, sizes, compression))
        .add_service(configured!(reflection_v1alpha, sizes, compression))
        .add_service(configured!(reflection_v1, sizes, compression))
        .prepare()
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The full names of all methods that can be called.
#[must_use]
pub fn methods() -> Vec<String> {
    let sets = [
        proto::DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut names = Vec::new();
    for set in sets {
        let set = FileDescriptorSet::decode(set).expect("the built-in descriptors are valid");
        for file in set.file {
            for service in file.service {
                let path =
                    |method: &str| format!("{}.{}/{method}", file.package.as_deref().unwrap_or(""), service.name());
                names.extend(service.method.iter().map(|method| path(method.name())));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_known_by_its_path() {
        let methods = methods();
        for expected in [
            "remuda.v1.WorkerPool/Submit",
            "remuda.v1.PoolAdmin/ListQueries",
            "grpc.health.v1.Health/Watch",
            "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ] {
            assert!(methods.iter().any(|method| method == expected), "{expected} is missing in {methods:?}");
        }
    }
}
