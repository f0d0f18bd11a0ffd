//! Refuses requests that are not gRPC, and adds details to the status of requests that tonic cannot read: too large,
//! malformed, or with an unknown compression.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use pin_project_lite::pin_project;
use tokio_util::either::Either;
use tonic::{Status, body::Body};
use tower::Service;

use crate::api::errors;

use super::{MaybeRefused, ServiceResult, refuse};

const GRPC_CONTENT_TYPE: &[u8] = b"application/grpc";

#[derive(Debug, Clone)]
pub(super) struct GrpcCheck<S> {
    pub inner: S,
}

impl<S, B> Service<Request<B>> for GrpcCheck<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = MaybeRefused<ExplainedFuture<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !is_grpc(request.headers()) {
            return refuse(unsupported_media_type());
        }
        Either::Left(ExplainedFuture { inner: self.inner.call(request) })
    }
}

/// True for `application/grpc` and its variants, such as `application/grpc+proto`, but not for gRPC-Web.
fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(GRPC_CONTENT_TYPE));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

fn unsupported_media_type() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

pin_project! {
    /// Adds details to the status if tonic refused the request.
    pub(super) struct ExplainedFuture<F> {
        #[pin]
        inner: F,
    }
}

impl<F: Future<Output = ServiceResult>> Future for ExplainedFuture<F> {
    type Output = ServiceResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(self.project().inner.poll(context));
        // The status of a request that was read is in the trailers.
        if !response.body().is_end_stream() {
            return Poll::Ready(Ok(response));
        }
        let explained = Status::from_header_map(response.headers()).as_ref().and_then(errors::explain_tonic_status);
        Poll::Ready(Ok(explained.map_or(response, Status::into_http)))
    }
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn refusals_of_tonic_get_details_and_other_requests_do_not_reach_it() {
        let tonic = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Status::internal("unreadable").into_http()));
        let mut service = GrpcCheck { inner: tonic };
        let request = |content_type: &str| Request::builder().header(CONTENT_TYPE, content_type).body(()).unwrap();
        let Ok(response) = service.call(request("text/plain")).await;
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let Ok(response) = service.call(request("application/grpc")).await;
        let status = Status::from_header_map(response.headers()).unwrap();
        assert!(status.code() == tonic::Code::InvalidArgument && !status.details().is_empty(), "{status:?}");
    }

    #[test]
    fn content_type_must_be_grpc() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            is_grpc(&headers)
        };
        assert!(["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"].into_iter().all(with));
        assert!(
            !["application/json", "application/grpc-web", "application/grpcx", "text/plain", ""].into_iter().any(with)
        );
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
