//! Lets a call through if its token allows the method.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, header::AUTHORIZATION};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::debug;

use crate::{
    api::errors,
    security::{AuthError, RequiredRole, Tokens},
    transport::ConnectionEntry,
};

use super::refusal::MaybeRefused;

#[derive(Debug, Clone)]
pub(super) struct AuthorizeLayer {
    /// `None`: everybody may do everything.
    pub tokens: Option<Arc<Tokens>>,
    pub connection: Arc<ConnectionEntry>,
}

#[derive(Debug, Clone)]
pub(super) struct Authorize<S> {
    layer: AuthorizeLayer,
    inner: S,
}

impl<S> Layer<S> for AuthorizeLayer {
    type Service = Authorize<S>;

    fn layer(&self, inner: S) -> Authorize<S> {
        Authorize { layer: self.clone(), inner }
    }
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
        if let Err(status) = self.layer.check(&request) {
            return MaybeRefused::refused(status.into_http());
        }
        // A connection whose calls are refused makes room like one without calls.
        if !self.layer.connection.mark_active() {
            return MaybeRefused::refused(errors::connection_leaving().into_http());
        }
        MaybeRefused::Passed { inner: self.inner.call(request) }
    }
}

impl AuthorizeLayer {
    fn check<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let path = request.uri().path();
        let header = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        tokens.check(header, need(path)).map_err(|denied| {
            debug!(path, %denied, "call refused");
            refusal(denied)
        })
    }
}

fn refusal(denied: AuthError) -> Status {
    let (code, reason) = match denied {
        AuthError::MissingToken => (Code::Unauthenticated, "NO_TOKEN"),
        AuthError::InvalidToken => (Code::Unauthenticated, "BAD_TOKEN"),
        AuthError::MissingRole(_) => (Code::PermissionDenied, "MISSING_ROLE"),
    };
    errors::plain(code, &denied.to_string(), reason)
}

/// The role that a method needs. One that is not listed needs the most.
fn need(path: &str) -> RequiredRole {
    listed(path).unwrap_or(RequiredRole::Admin)
}

fn listed(path: &str) -> Option<RequiredRole> {
    let (service, method) = path.trim_start_matches('/').rsplit_once('/')?;
    Some(match (service, method) {
        ("remuda.v1.WorkerPool", "Submit" | "Execute" | "Cancel") => RequiredRole::Submit,
        ("remuda.v1.WorkerPool", "StreamResults" | "Health")
        | (
            "grpc.health.v1.Health"
            | "grpc.reflection.v1.ServerReflection"
            | "grpc.reflection.v1alpha.ServerReflection",
            _,
        ) => RequiredRole::SubmitOrRead,
        (
            "remuda.v1.PoolAdmin",
            "GetWorker" | "ListWorkers" | "GetQuery" | "ListQueries" | "ListDeadLetters" | "GetDeadLetter"
            | "WatchEvents",
        ) => RequiredRole::Read,
        (
            "remuda.v1.PoolAdmin",
            "ScaleKind" | "RestartWorker" | "EvictWorker" | "DrainWorker" | "ResumeWorker" | "DrainPool" | "ResumePool"
            | "Reload" | "RequeueDeadLetters" | "PurgeDeadLetters",
        ) => RequiredRole::Admin,
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
    async fn a_call_marks_its_connection_and_one_that_is_closed_takes_none() {
        let limiter = ConnectionLimiter::new(1, CancellationToken::new());
        let slot = limiter.try_acquire().unwrap();
        let answer = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let layer = AuthorizeLayer { tokens: None, connection: slot.entry.clone() };
        let mut service = layer.layer(answer);
        let waiting = tokio::spawn(limiter.clone().acquire());
        slot.entry.wait_for_leave_request().await;
        let Ok(response) = service.call(Request::new(())).await;
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Unavailable);
        drop(slot);
        let slot = waiting.await.unwrap();
        let layer = AuthorizeLayer { tokens: None, connection: slot.entry.clone() };
        let Ok(response) = layer.layer(answer).call(Request::new(())).await;
        assert!(Status::from_header_map(response.headers()).is_none() && slot.entry.is_active());
    }

    #[test]
    fn every_method_is_listed_with_what_it_needs() {
        for method in crate::api::methods() {
            assert!(listed(&format!("/{method}")).is_some(), "{method} is not listed");
        }
        assert_eq!(need("/remuda.v1.PoolAdmin/SomethingNew"), RequiredRole::Admin);
        assert_eq!(need("/"), RequiredRole::Admin);
    }
}
