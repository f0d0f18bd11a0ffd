//! Counts, times and traces each call, from its request to the last byte of its response.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::{Code, Status, body::Body};
use tower::Service;
use tracing::debug;

use crate::{
    metrics::{GRPC_CODES, MethodMetrics, Metrics},
    trace::CallTrace,
    transport::{ConnectionEntry, OpenCall},
};

use super::ServiceResult;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Metrics of calls by method.
#[derive(Debug)]
pub(in crate::api) struct MethodTable {
    known: HashMap<Box<str>, Arc<MethodMetrics>, RandomState>,
    /// Shared by all unknown paths, because clients can make up any number of them.
    unknown: Arc<MethodMetrics>,
}

#[derive(Debug, Clone)]
pub(super) struct Observe<S> {
    pub methods: Arc<MethodTable>,
    pub connection: Arc<ConnectionEntry>,
    pub inner: S,
}

/// An open call. Dropping it records its end.
#[derive(Debug)]
struct ObservedCall {
    metrics: Arc<MethodMetrics>,
    began: Instant,
    trace: CallTrace,
    code: Option<Code>,
    _open: OpenCall,
}

pin_project! {
    pub(super) struct ObservedFuture<F> {
        #[pin]
        inner: F,
        call: Option<ObservedCall>,
    }
}

/// The body of a response, whose trailers hold the status of the call.
#[derive(Debug)]
pub(in crate::api) struct ObservedBody {
    inner: Body,
    call: ObservedCall,
}

impl MethodTable {
    /// `methods` are the full names of all methods, such as `remuda.v1.WorkerPool/Submit`.
    pub(in crate::api) fn new(metrics: &Metrics, methods: &[String]) -> Self {
        let (known, unknown) = metrics.methods(methods);
        Self { known: known.into_iter().map(|method| (method.method.clone(), method)).collect(), unknown }
    }

    pub(super) fn get(&self, path: &str) -> Option<&Arc<MethodMetrics>> {
        self.known.get(path.strip_prefix('/')?)
    }
}

impl<S, B> Service<Request<B>> for Observe<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<ObservedBody>;
    type Error = Infallible;
    type Future = ObservedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let call = self.begin(&request);
        if let Some(context) = &call.trace.context {
            request.extensions_mut().insert(context.clone());
        }
        let inner = call.trace.span.in_scope(|| self.inner.call(request));
        ObservedFuture { inner, call: Some(call) }
    }
}

impl<S> Observe<S> {
    fn begin<B>(&self, request: &Request<B>) -> ObservedCall {
        let metrics = self.methods.get(request.uri().path()).unwrap_or(&self.methods.unknown).clone();
        let trace = CallTrace::begin(&metrics.method, request.headers());
        ObservedCall { metrics, began: Instant::now(), trace, code: None, _open: self.connection.clone().open_call() }
    }
}

impl<F: Future<Output = ServiceResult>> Future for ObservedFuture<F> {
    type Output = Result<Response<ObservedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = {
            let span = this.call.as_ref().map(|call| call.trace.span.enter());
            let Ok(response) = ready!(this.inner.poll(context));
            drop(span);
            response
        };
        let mut call = this.call.take().expect("a future is not polled after its end");
        if response.body().is_end_stream() {
            call.record_refusal(&response);
        }
        Poll::Ready(Ok(response.map(|inner| ObservedBody { inner, call })))
    }
}

impl HttpBody for ObservedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let _entered = this.call.trace.span.enter();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        if let Some(trailers) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.trailers_ref()) {
            this.call.code = code(trailers).or(this.call.code);
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

fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get(&GRPC_STATUS).map(|status| Code::from_bytes(status.as_bytes()))
}

impl ObservedCall {
    /// Records the status of a response without a body, which is in the headers instead of the trailers.
    fn record_refusal<B>(&mut self, response: &Response<B>) {
        // Clients treat a response that is not gRPC as unknown.
        let is_grpc = response.status() == StatusCode::OK;
        self.code = if is_grpc { code(response.headers()) } else { Some(Code::Unknown) };
    }
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        // Without a status the client has disconnected before the end.
        let code = self.code.unwrap_or(Code::Cancelled) as usize;
        self.trace.span.in_scope(|| debug!(code = GRPC_CODES[code], "call finished"));
        self.trace.end(GRPC_CODES[code]);
        self.metrics.record_call(code, self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http_body_util::BodyExt;
    use tokio_util::sync::CancellationToken;
    use tower::service_fn;

    use super::*;
    use crate::transport::ConnectionLimiter;

    #[tokio::test]
    async fn call_is_counted_by_its_status_or_as_cancelled_if_its_client_disconnects() {
        let metrics = Metrics::new();
        let methods = Arc::new(MethodTable::new(&metrics, &["a.B/C".to_owned()]));
        let slot = ConnectionLimiter::new(1, CancellationToken::new()).try_acquire().unwrap();

        let request = || Request::builder().uri("/a.B/C").body(()).unwrap();
        let never = service_fn(|_: Request<()>| pending::<Result<Response<Body>, Infallible>>());
        let connection = slot.entry.clone();
        drop(Observe { methods: methods.clone(), connection: connection.clone(), inner: never }.call(request()));
        let refuse = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Status::not_found("").into_http()));
        let Ok(response) = Observe { methods, connection, inner: refuse }.call(request()).await;
        response.into_body().collect().await.unwrap();
        let page = metrics.render();
        for code in ["CANCELLED", "NOT_FOUND"] {
            let series = format!("_grpc_requests_total{{code=\"{code}\",method=\"a.B/C\"}} 1");
            assert!(page.contains(&series), "{series} is missing in:\n{page}");
        }
    }

    #[test]
    fn codes_have_their_names_at_their_numbers() {
        for (number, name) in GRPC_CODES.iter().enumerate() {
            let code = Code::from_i32(number.try_into().unwrap());
            let expected = format!("{code:?}").to_uppercase();
            assert_eq!((code as usize, expected), (number, name.replace('_', "")));
        }
    }
}
