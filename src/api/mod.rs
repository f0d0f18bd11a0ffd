//! Translates between gRPC and the pool; decides nothing. Nothing outside this directory names a tonic type.

pub mod client;
pub mod proto;

mod access;
mod answer;
mod arrival;
mod bell;
mod call;
mod conversation;
mod convert;
mod errors;
mod events;
mod floor;
mod frames;
mod grpc;
mod health;
mod incoming;
mod keepalive;
mod pool_admin;
mod pool_events;
mod request;
mod tarpit;
mod turn;
mod wire;
mod worker_pool;

use std::sync::Arc;

use prost::Message;
use prost_types::FileDescriptorSet;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::{config::Config, metrics::Metrics, pool::Pool, security::Security};

pub use floor::{FloorError, serve_floor};
pub use incoming::Listener;

use access::Access;
use call::{Api, Methods};
use conversation::{Manner, converse};
use health::HealthService;
use incoming::Incoming;
use pool_admin::PoolAdminService;
use proto::pool_admin_server::PoolAdminServer;
use worker_pool::WorkerPoolService;

/// What an event may take beyond the line that it came from: names, numbers, a certificate.
const EVENT_OVERHEAD: u64 = 64 * 1024;

/// Serves gRPC on `listener` until `closing` is cancelled and all calls have ended. It does not end by itself if a client
/// keeps a call open: the caller bounds the wait and drops this.
pub async fn serve(
    listener: Listener,
    pool: Pool,
    config: &Config,
    metrics: Arc<Metrics>,
    security: &Security,
    closing: CancellationToken,
) {
    let limits = &config.server;
    let mut incoming = Incoming::new(listener, security.tls.clone(), limits, metrics.connections(), &closing);
    let api = Arc::new(Api {
        methods: Methods::new(&metrics, &methods()),
        access: Access { tokens: security.tokens.clone() },
        request_timeout: limits.request_timeout,
        worker_pool: WorkerPoolService { max_message_bytes: max_message_bytes(config), pool: pool.clone() },
        others: routes(&pool, config, &closing),
    });
    let manner = Manner::new(limits);
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            connection = incoming.next() => {
                conversations.spawn(converse(connection, manner.clone(), api.clone(), closing.clone()));
            }
            Some(_) = conversations.join_next() => {}
            () = closing.cancelled() => break,
        }
    }
    drop(incoming);
    while conversations.join_next().await.is_some() {}
}

fn max_message_bytes(config: &Config) -> usize {
    usize::try_from(config.server.max_message_bytes).unwrap_or(usize::MAX)
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
