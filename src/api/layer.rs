//! What happens around every call: a tracing span, and a count by method and status code.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Code;
use tower::{Layer, Service};
use tracing::{Instrument, Span, debug, info_span};

use crate::metrics::Metrics;

#[derive(Debug, Clone)]
pub(super) struct ObserveLayer {
    metrics: Arc<Metrics>,
    methods: Arc<[String]>,
}

#[derive(Debug, Clone)]
pub(super) struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

/// A call from its request to the end of its response, however that comes.
#[derive(Debug)]
struct Call {
    metrics: Arc<Metrics>,
    method: String,
    span: Span,
    code: Option<Code>,
}

pin_project! {
    /// A response body that notices its own end.
    pub(super) struct Observed<B> {
        #[pin]
        inner: B,
        call: Call,
    }
}

impl ObserveLayer {
    /// `methods` are the full names of all methods there are, such as `remuda.v1.WorkerPool/Submit`.
    pub(super) fn new(metrics: Arc<Metrics>, methods: Vec<String>) -> Self {
        Self { metrics, methods: methods.into() }
    }

    /// Names the method for the metric. Paths that do not exist share one name: clients can make up any number.
    fn method(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        let known = self.methods.iter().any(|method| method == path);
        if known { path.to_owned() } else { "other".to_owned() }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe { inner, layer: self.clone() }
    }
}

impl<S, A, B> Service<Request<A>> for Observe<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Send + 'static,
{
    type Response = Response<Observed<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let method = self.layer.method(request.uri().path());
        let span = info_span!("rpc", method);
        let mut call = Call { metrics: self.layer.metrics.clone(), method, span: span.clone(), code: None };
        let handling = self.inner.call(request);
        let observed = async move {
            let response = handling.await?;
            // A failure without a message has its status among the headers.
            call.code = code(response.headers());
            Ok(response.map(|inner| Observed { inner, call }))
        };
        Box::pin(observed.instrument(span))
    }
}

impl<B: Body> Body for Observed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let entered = this.call.span.enter();
        let frame = ready!(this.inner.poll_frame(context));
        drop(entered);
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            this.call.code = code(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Without a status the client went away before the end.
        let code = name(self.code.unwrap_or(Code::Cancelled));
        let _entered = self.span.enter();
        debug!(code, "call finished");
        self.metrics.rpc_finished(&self.method, code);
    }
}

fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes()))
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
