//! All gRPC services, and the routing of a call to its service.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use tokio_util::sync::CancellationToken;
use tonic::{body::Body, codec::CompressionEncoding, service::Routes};
use tonic_health::pb::health_server::HealthServer;
use tower::{BoxError, Service};

use crate::{
    config::{Compression, Config},
    pool::Pool,
};

use super::{
    health::HealthService,
    pool_admin::PoolAdminService,
    proto::{
        self,
        services::{pool_admin_server::PoolAdminServer, worker_pool_server::WorkerPoolServer},
    },
    worker_pool::WorkerPoolService,
};

/// Bound of the parts of an event beside the worker's line: names, numbers, a death certificate.
const EVENT_OVERHEAD_BYTES: u64 = 64 * 1024;
const WORKER_POOL_PREFIX: &str = "/remuda.v1.WorkerPool/";

/// All services. Calls of `WorkerPool` bypass the router of `Routes`, which would cost a query 4,000 instructions, a
/// twentieth of the total.
#[derive(Debug, Clone)]
pub(super) struct Services {
    worker_pool: WorkerPoolServer<WorkerPoolService>,
    others: Routes,
}

/// Sets the size limits and the compression of a service.
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

/// Maximum sizes of messages, in bytes.
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

impl Services {
    pub(super) fn new(pool: &Pool, config: &Config, closing: &CancellationToken) -> Self {
        let (sizes, compression) = (MessageSizes::new(config), &config.server.compression);
        let worker_pool = WorkerPoolServer::new(WorkerPoolService { pool: pool.clone() });
        let pool_admin = PoolAdminServer::new(PoolAdminService { pool: pool.clone(), closing: closing.clone() });
        let health = HealthServer::new(HealthService { pool: pool.clone(), closing: closing.clone() });
        // Older clients only know the alpha version of reflection.
        let reflection_v1alpha = reflection().build_v1alpha().expect("the built-in descriptors are valid");
        let reflection_v1 = reflection().build_v1().expect("the built-in descriptors are valid");
        let others = Routes::new(configured!(pool_admin, sizes, compression))
            .add_service(configured!(health, sizes, compression))
            .add_service(configured!(reflection_v1alpha, sizes, compression))
            .add_service(configured!(reflection_v1, sizes, compression))
            .prepare();
        // Lines of workers are bounded where they are read, by the current configuration of the kind.
        let sizes = MessageSizes { send: usize::MAX, ..sizes };
        Self { worker_pool: configured!(worker_pool, sizes, compression), others }
    }
}

impl<B> Service<Request<B>> for Services
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path().starts_with(WORKER_POOL_PREFIX) {
            return self.worker_pool.call(request);
        }
        Box::pin(self.others.call(request))
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Full names of all methods, such as `remuda.v1.WorkerPool/Submit`.
#[must_use]
pub fn methods() -> Vec<String> {
    let sets = [
        proto::DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let decode = |set| FileDescriptorSet::decode(set).expect("the built-in descriptors are valid");
    let files = sets.into_iter().flat_map(|set: &[u8]| decode(set).file);
    let names = files.flat_map(|file| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let path = |method: &MethodDescriptorProto| format!("{package}.{}/{}", service.name(), method.name());
            service.method.iter().map(path).collect::<Vec<_>>()
        })
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_all_services_are_listed() {
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
