//! Bounds the time in which a request must have arrived: headers alone, or a message sent byte by byte, hold a call open
//! for nothing.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use humantime::format_duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

/// Calls to this service are conversations: their requests come as the client thinks of them.
const CONVERSATIONS: &str = "/grpc.reflection.";

#[derive(Debug, Clone, Copy)]
pub(super) struct ArrivalLayer {
    pub limit: Duration,
}

#[derive(Debug, Clone)]
pub(super) struct Arrival<S> {
    inner: S,
    limit: Duration,
}

/// A request that must be there in time.
struct Arriving {
    body: Body,
    limit: Duration,
    due: Instant,
    /// Made when there is first something to wait for, which mostly there is not.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Layer<S> for ArrivalLayer {
    type Service = Arrival<S>;

    fn layer(&self, inner: S) -> Arrival<S> {
        Arrival { inner, limit: self.limit }
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Arrival<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        if request.body().is_end_stream() || request.uri().path().starts_with(CONVERSATIONS) {
            return self.inner.call(request);
        }
        let (limit, due) = (self.limit, Instant::now() + self.limit);
        self.inner.call(request.map(|body| Body::new(Arriving { body, limit, due, timer: None })))
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let due = self.due;
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep_until(due))).as_mut().poll(context));
        let text = format!("the request was not there within {} (server.request_timeout)", format_duration(self.limit));
        Poll::Ready(Some(Err(Status::deadline_exceeded(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
