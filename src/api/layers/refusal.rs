//! The future of a layer that may answer a call itself.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;
use pin_project_lite::pin_project;
use tonic::body::Body;

pin_project! {
    /// Resolves to the answer of the inner service, or to the layer's own.
    #[project = MaybeRefusedProjection]
    pub(super) enum MaybeRefused<F> {
        Passed { #[pin] inner: F },
        Refused { response: Option<Response<Body>> },
    }
}

impl<F> MaybeRefused<F> {
    pub(super) fn refused(response: Response<Body>) -> Self {
        Self::Refused { response: Some(response) }
    }
}

impl<F: Future<Output = Result<Response<Body>, Infallible>>> Future for MaybeRefused<F> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            MaybeRefusedProjection::Passed { inner } => inner.poll(context),
            MaybeRefusedProjection::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("a future is not polled after its end")))
            }
        }
    }
}
