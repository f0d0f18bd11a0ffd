//! Refuses calls whose token does not have the role that the method requires.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, header::AUTHORIZATION};
use tokio_util::either::Either;
use tonic::{Code, Status, body::Body};
use tower::Service;
use tracing::debug;

use crate::{
    api::errors,
    security::{AuthError, RequiredRole, Role, Tokens},
    transport::ConnectionEntry,
};

use super::{MaybeRefused, refuse};

#[derive(Debug, Clone)]
pub(super) struct Authorize<S> {
    /// `None` allows every call.
    pub tokens: Option<Arc<Tokens>>,
    pub connection: Arc<ConnectionEntry>,
    pub inner: S,
}

impl<S, B> Service<Request<B>> for Authorize<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = MaybeRefused<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Err(status) = self.check(&request) {
            return refuse(status.into_http());
        }
        // After the check: a connection whose calls are all refused is closed like one without calls.
        if !self.connection.mark_active() {
            return refuse(errors::connection_closing().into_http());
        }
        Either::Left(self.inner.call(request))
    }
}

impl<S> Authorize<S> {
    fn check<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let path = request.uri().path();
        let header = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        tokens.check(header, required_role(path)).map_err(|error| {
            debug!(path, %error, "call refused");
            auth_status(error)
        })
    }
}

fn auth_status(error: AuthError) -> Status {
    let (code, reason) = match error {
        AuthError::MissingToken => (Code::Unauthenticated, "NO_TOKEN"),
        AuthError::InvalidToken => (Code::Unauthenticated, "BAD_TOKEN"),
        AuthError::MissingRole(_) => (Code::PermissionDenied, "MISSING_ROLE"),
    };
    errors::status(code, reason, &error.to_string(), &[])
}

/// Roles of which a method requires one. A method that is not listed requires `Admin`.
fn required_role(path: &str) -> RequiredRole {
    listed_role(path).unwrap_or(&[Role::Admin])
}

fn listed_role(path: &str) -> Option<RequiredRole> {
    let (service, method) = path.trim_start_matches('/').rsplit_once('/')?;
    Some(match service {
        "remuda.v1.WorkerPool" => match method {
            "Submit" | "Execute" | "Cancel" => &[Role::Submit],
            "StreamResults" | "Health" => &[Role::Submit, Role::Read],
            _ => return None,
        },
        "remuda.v1.PoolAdmin" => match method {
            "GetWorker" | "ListWorkers" | "GetQuery" | "ListQueries" | "GetDeadLetter" | "ListDeadLetters"
            | "WatchEvents" => &[Role::Read],
            "ScaleKind" | "RestartWorker" | "EvictWorker" | "DrainWorker" | "ResumeWorker" | "DrainPool"
            | "ResumePool" | "Reload" | "RequeueDeadLetters" | "PurgeDeadLetters" => &[Role::Admin],
            _ => return None,
        },
        "grpc.health.v1.Health"
        | "grpc.reflection.v1.ServerReflection"
        | "grpc.reflection.v1alpha.ServerReflection" => &[Role::Submit, Role::Read],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;
    use tower::service_fn;

    use super::*;
    use crate::transport::ConnectionLimiter;

    #[tokio::test]
    async fn call_marks_its_connection_active_unless_it_is_being_closed() {
        let limiter = ConnectionLimiter::new(1, CancellationToken::new());
        let slot = limiter.try_acquire().unwrap();
        let answer = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let mut service = Authorize { tokens: None, connection: slot.entry.clone(), inner: answer };
        let waiting = tokio::spawn(limiter.clone().acquire());
        slot.entry.wait_for_leave_request().await;
        let Ok(response) = service.call(Request::new(())).await;
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Unavailable);
        drop(slot);
        let slot = waiting.await.unwrap();
        let mut service = Authorize { tokens: None, connection: slot.entry.clone(), inner: answer };
        let Ok(response) = service.call(Request::new(())).await;
        assert!(Status::from_header_map(response.headers()).is_none() && slot.entry.is_active());
    }

    #[test]
    fn methods_are_all_listed_with_their_role() {
        for method in crate::api::methods() {
            assert!(listed_role(&format!("/{method}")).is_some(), "{method} is not listed");
        }
        assert_eq!(required_role("/remuda.v1.PoolAdmin/SomethingNew"), [Role::Admin]);
        assert_eq!(required_role("/"), [Role::Admin]);
    }
}
