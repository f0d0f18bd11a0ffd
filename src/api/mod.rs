//! Translates between gRPC and the pool; decides nothing. Nothing outside this directory names a tonic type.

pub mod client;
pub mod proto;

mod access;
mod arrival;
mod convert;
mod errors;
mod events;
mod floor;
mod frames;
mod grpc;
mod health;
mod incoming;
mod layer;
mod pool_admin;
mod pool_events;
mod request;
mod tarpit;
mod wire;
mod worker_pool;

use std::sync::Arc;

use prost::Message;
use prost_types::FileDescriptorSet;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::Server};
use tonic_health::pb::health_server::HealthServer;

use crate::{config::Config, metrics::Metrics, pool::Pool, security::Security};

pub use floor::serve_floor;
pub use incoming::Listener;

use access::AccessLayer;
use arrival::ArrivalLayer;
use health::HealthService;
use incoming::Incoming;
use layer::ObserveLayer;
use pool_admin::PoolAdminService;
use proto::pool_admin_server::PoolAdminServer;
use worker_pool::{WorkerPoolLayer, WorkerPoolService};

/// What an event may take beyond the line that it came from: names, numbers, a certificate.
const EVENT_OVERHEAD: u64 = 64 * 1024;

/// Calls that a client may take back while they wait to be begun; with one more the connection is closed. They have been
/// looked at by then, or `frames` would have held them: a client may stop all of its calls at once.
const MAX_PENDING_RESETS: usize = 1024;
/// Calls that may break the rules of HTTP/2 on one connection before it is closed.
const MAX_LOCAL_RESETS: usize = 1024;

#[derive(Debug, Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves gRPC on `listener` until `closing` is cancelled and all calls have ended. It does not end by itself if a client
/// keeps a call open: the caller bounds the wait and drops this.
pub async fn serve(
    listener: Listener,
    pool: Pool,
    config: &Config,
    metrics: Arc<Metrics>,
    security: &Security,
    closing: CancellationToken,
) -> Result<(), ServeError> {
    let limits = &config.server;
    let incoming = Incoming::new(listener, security.tls.clone(), limits, metrics.connections(), &closing);
    Server::builder()
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        .http2_max_header_list_size(u32::try_from(limits.max_metadata_bytes).unwrap_or(u32::MAX))
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .http2_max_local_error_reset_streams(Some(MAX_LOCAL_RESETS))
        .max_concurrent_streams(limits.max_concurrent_streams.get())
        .layer(ObserveLayer::new(&metrics, &methods()))
        .layer(AccessLayer::new(security.tokens.clone()))
        .layer(ArrivalLayer { limit: limits.request_timeout })
        .layer(WorkerPoolLayer(worker_pool(&pool, config)))
        .add_routes(routes(&pool, config, &closing))
        .serve_with_incoming_shutdown(incoming, closing.cancelled())
        .await?;
    Ok(())
}

fn max_message_bytes(config: &Config) -> usize {
    usize::try_from(config.server.max_message_bytes).unwrap_or(usize::MAX)
}

fn worker_pool(pool: &Pool, config: &Config) -> Arc<WorkerPoolService> {
    Arc::new(WorkerPoolService { pool: pool.clone(), max_message_bytes: max_message_bytes(config) })
}

/// Every service but the one that queries come by.
fn routes(pool: &Pool, config: &Config, closing: &CancellationToken) -> Routes {
    let receive = max_message_bytes(config);
    let longest_line = config.kinds.iter().map(|kind| kind.max_line_bytes).max().unwrap_or_default();
    let send = longest_line.max(config.server.max_message_bytes).saturating_add(EVENT_OVERHEAD);
    let send = usize::try_from(send).unwrap_or(usize::MAX);
    let pool_admin = PoolAdminServer::new(PoolAdminService { pool: pool.clone(), closing: closing.clone() })
        .max_decoding_message_size(receive)
        .max_encoding_message_size(send);
    let health = HealthServer::new(HealthService { pool: pool.clone(), closing: closing.clone() })
        .max_decoding_message_size(receive);
    let mut routes = Routes::new(pool_admin).add_service(health);
    // Both versions of reflection: older clients know only the first.
    routes = routes.add_service(reflection().build_v1alpha().expect("the built-in descriptors are valid"));
    routes.add_service(reflection().build_v1().expect("the built-in descriptors are valid"))
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
