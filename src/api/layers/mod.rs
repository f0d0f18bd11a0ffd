//! The tower layers around the services, from the outside in: observe, authorize, limits, request deadline.

mod authorize;
mod deadline;
mod limits;
mod observe;
mod refusal;

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use tower::{Service, ServiceBuilder};

use crate::{api::services::Services, security::Tokens, transport::ConnectionEntry};

pub(super) use deadline::client_deadline;
pub(super) use observe::Methods;

use authorize::AuthorizeLayer;
use deadline::RequestDeadlineLayer;
use limits::LimitsLayer;
use observe::{ObserveLayer, ObservedBody};

/// Settings of the layers, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct Layers {
    pub methods: Arc<Methods>,
    /// `None`: everybody may do everything.
    pub tokens: Option<Arc<Tokens>>,
    /// Time for a request to arrive.
    pub request_timeout: Duration,
}

impl Layers {
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
        ServiceBuilder::new()
            .layer(ObserveLayer { methods: self.methods.clone(), connection: connection.clone() })
            .layer(AuthorizeLayer { tokens: self.tokens.clone(), connection })
            .layer(LimitsLayer)
            .layer(RequestDeadlineLayer { request_timeout: self.request_timeout })
            .service(services)
    }
}
