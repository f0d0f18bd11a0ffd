//! The tower layers around the services, from the outside in: observe, authorize, gRPC check, deadline.

mod authorize;
mod deadline;
mod grpc_check;
mod observe;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::either::Either;
use tonic::body::Body;
use tower::{Service, ServiceBuilder};

use crate::{api::services::Services, security::Tokens, transport::ConnectionEntry};

pub(super) use deadline::client_deadline;
pub(super) use observe::MethodTable;

use authorize::Authorize;
use deadline::RequestDeadline;
use grpc_check::GrpcCheck;
use observe::{Observe, ObservedBody};

/// Settings of the layers, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct LayerSettings {
    pub methods: Arc<MethodTable>,
    /// `None` allows every call.
    pub tokens: Option<Arc<Tokens>>,
    /// Time for a request to arrive.
    pub request_timeout: Duration,
}

impl LayerSettings {
    /// The services as one connection reaches them.
    pub(super) fn wrap(
        &self,
        services: Services,
        connection: Arc<ConnectionEntry>,
    ) -> impl Service<Request<Incoming>, Response = Response<ObservedBody>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
    + use<> {
        let Self { methods, tokens, request_timeout } = self.clone();
        let observed = connection.clone();
        ServiceBuilder::new()
            .layer_fn(move |inner| Observe { methods: methods.clone(), connection: observed.clone(), inner })
            .layer_fn(move |inner| Authorize { tokens: tokens.clone(), connection: connection.clone(), inner })
            .layer_fn(|inner| GrpcCheck { inner })
            .layer_fn(|inner| RequestDeadline { request_timeout, inner })
            .service(services)
    }
}

type ServiceResult = Result<Response<Body>, Infallible>;

/// The future of a layer that may answer a call itself.
type MaybeRefused<F> = Either<F, Ready<ServiceResult>>;

fn refuse<F>(response: Response<Body>) -> MaybeRefused<F> {
    Either::Right(ready(Ok(response)))
}
