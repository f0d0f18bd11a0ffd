//! Bounds the time for a request to arrive, and the time for its response if the client sets a deadline.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status, body::Body};
use tower::{BoxError, Service};

use crate::api::errors;

use super::ServiceResult;

static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The only service with client-streaming methods.
const CLIENT_STREAMING_PREFIX: &str = "/grpc.reflection.";
/// The deadline of this method is that of its query, which the broker enforces.
const EXECUTE_PATH: &str = "/remuda.v1.WorkerPool/Execute";
/// Length of the prefix of a message: a flag and four bytes of length.
const PREFIX_BYTES: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct RequestDeadline<S> {
    pub request_timeout: Duration,
    pub inner: S,
}

impl<S, B> Service<Request<B>> for RequestDeadline<S>
where
    S: Service<Request<TimedRequestBody<B>>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = DeadlineFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        // An invalid deadline is ignored here.
        let deadline = if path == EXECUTE_PATH { None } else { client_deadline(request.headers()).ok().flatten() };
        let is_client_streaming = path.starts_with(CLIENT_STREAMING_PREFIX);
        let request = request.map(|body| TimedRequestBody::new(body, self.request_timeout, is_client_streaming));
        let timer = deadline.map(|time| Box::pin(sleep(time)));
        DeadlineFuture { timer, inner: self.inner.call(request) }
    }
}

pin_project! {
    /// Ends with `DEADLINE_EXCEEDED` at the client's deadline. A response stream that has begun is not bounded.
    pub(super) struct DeadlineFuture<F> {
        #[pin]
        inner: F,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ServiceResult>> Future for DeadlineFuture<F> {
    type Output = ServiceResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(response) = this.inner.poll(context) {
            return Poll::Ready(response);
        }
        let Some(timer) = this.timer else { return Poll::Pending };
        timer.as_mut().poll(context).map(|()| Ok(errors::client_deadline_passed().into_http()))
    }
}

/// The time until the client's deadline, from the `grpc-timeout` header.
pub(in crate::api) fn client_deadline(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(&GRPC_TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let parsed = text.split_at_checked(text.len().saturating_sub(1)).and_then(|(digits, unit)| {
        let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3_600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    });
    match parsed {
        Some(duration) => Ok(Some(duration)),
        None => Err(errors::invalid("grpc-timeout", format!("is {text:?}, which is not a gRPC timeout such as 30S"))),
    }
}

/// A request body that fails if it does not arrive in time. Each message of a client stream has that time.
#[derive(Debug)]
pub(super) struct TimedRequestBody<B> {
    inner: B,
    timeout: Duration,
    /// Set for client streams.
    messages: Option<MessageEnds>,
    /// Created at the first wait, which most requests do not need.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedRequestBody<B> {
    fn new(inner: B, timeout: Duration, is_client_streaming: bool) -> Self {
        let messages = is_client_streaming.then(MessageEnds::default);
        Self { inner, timeout, messages, timer: None }
    }

    /// Restarts the time at the end of a message.
    fn on_data(&mut self, data: &[u8]) {
        if self.messages.as_mut().is_some_and(|messages| messages.end_within(data)) {
            self.timer = None;
        }
    }
}

impl<B> HttpBody for TimedRequestBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                self.on_data(data);
            }
            return match frame.transpose().map_err(|error| Status::from_error(error.into())) {
                // The client has reset the call, which hyper drops next.
                Err(status) if status.code() == Code::Cancelled => Poll::Pending,
                frame => Poll::Ready(frame.transpose()),
            };
        }
        let timeout = self.timeout;
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(context));
        Poll::Ready(Some(Err(errors::request_timed_out(timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Finds the ends of messages in a byte stream.
#[derive(Debug, Default)]
struct MessageEnds {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have arrived.
    known: usize,
    /// Bytes of the message that are missing.
    missing: usize,
}

impl MessageEnds {
    /// True if a message ends within these bytes.
    fn end_within(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while !bytes.is_empty() {
            let prefix_part = bytes.len().min(PREFIX_BYTES - self.known);
            self.prefix[self.known..][..prefix_part].copy_from_slice(&bytes[..prefix_part]);
            bytes = &bytes[prefix_part..];
            self.known += prefix_part;
            if prefix_part > 0 && self.known == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
            }
            let message_part = bytes.len().min(self.missing);
            bytes = &bytes[message_part..];
            self.missing -= message_part;
            if self.known == PREFIX_BYTES && self.missing == 0 {
                self.known = 0;
                ended = true;
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http_body_util::{BodyExt, Empty, StreamBody};
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn unanswered_call_ends_at_the_deadline_of_its_client() {
        let never =
            service_fn(|_: Request<TimedRequestBody<Empty<Bytes>>>| pending::<Result<Response<Body>, Infallible>>());
        let mut service = RequestDeadline { request_timeout: Duration::from_mins(1), inner: never };
        let request = Request::builder().uri("/a.B/C").header("grpc-timeout", "10m").body(Empty::new()).unwrap();
        let Ok(response) = service.call(request).await;
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::DeadlineExceeded);
    }

    #[tokio::test]
    async fn request_that_does_not_arrive_fails_in_time() {
        let never = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let status = TimedRequestBody::new(never, Duration::from_millis(10), false).collect().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    }

    /// After which of these pieces a message has ended.
    fn ends(pieces: &[&[u8]]) -> Vec<bool> {
        let mut messages = MessageEnds::default();
        pieces.iter().map(|piece| messages.end_within(piece)).collect()
    }

    #[test]
    fn message_ends_where_its_prefix_says() {
        assert_eq!(ends(&[&[0, 0, 0, 0, 2, 1, 2], &[0], &[0, 0, 0, 1], &[1]]), [true, false, false, true]);
        assert_eq!(ends(&[&[0, 0, 0, 0, 2, 1], &[2, 0, 0, 0, 0, 1], &[9]]), [false, true, true]);
        assert_eq!(ends(&[&[0, 0, 0, 0], &[0], &[], &[0, 0, 0, 0, 0]]), [false, true, false, true]);
    }

    #[test]
    fn deadline_is_read_in_every_unit() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            client_deadline(&headers)
        };
        assert_eq!(read("2H").unwrap(), Some(Duration::from_hours(2)));
        assert_eq!(read("3M").unwrap(), Some(Duration::from_mins(3)));
        assert_eq!(read("4S").unwrap(), Some(Duration::from_secs(4)));
        assert_eq!(read("5m").unwrap(), Some(Duration::from_millis(5)));
        assert_eq!(read("6u").unwrap(), Some(Duration::from_micros(6)));
        assert_eq!(read("7n").unwrap(), Some(Duration::from_nanos(7)));
        for bad in ["", "S", "5", "5x", "-1S", "123456789S"] {
            assert!(read(bad).unwrap_err().message().starts_with("grpc-timeout: "), "{bad:?}");
        }
    }
}
