//! What happens around every call: a tracing span, and a count by method and status code.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use foldhash::fast::RandomState;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Code;
use tower::{Layer, Service};
use tracing::{Instrument, debug};

use crate::{
    metrics::{CODES, MethodMetrics, Metrics},
    places::OpenCall,
    trace::CallTrace,
};

use super::incoming::Caller;

#[derive(Debug, Clone)]
pub(super) struct ObserveLayer {
    methods: Arc<HashMap<Box<str>, Arc<MethodMetrics>, RandomState>>,
    /// For paths that do not exist. They share one name: clients can make up any number.
    other: Arc<MethodMetrics>,
}

#[derive(Debug, Clone)]
pub(super) struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

/// A call from its request to the end of its response, however that comes.
#[derive(Debug)]
struct Call {
    metrics: Arc<MethodMetrics>,
    begun: Instant,
    trace: CallTrace,
    code: Option<Code>,
    /// Its connection is not idle meanwhile.
    _open: Option<OpenCall>,
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
    pub(super) fn new(metrics: &Metrics, methods: &[String]) -> Self {
        let (known, other) = metrics.methods(methods);
        Self { methods: Arc::new(known.into_iter().map(|method| (method.method.clone(), method)).collect()), other }
    }

    fn method(&self, path: &str) -> &Arc<MethodMetrics> {
        self.methods.get(path.trim_start_matches('/')).unwrap_or(&self.other)
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

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let metrics = self.layer.method(request.uri().path()).clone();
        let trace = CallTrace::begin(&metrics.method, request.headers());
        if let Some(context) = &trace.context {
            request.extensions_mut().insert(context.clone());
        }
        let span = trace.span.clone();
        let open = request.extensions().get().map(|Caller(guest)| guest.clone().call());
        let mut call = Call { metrics, begun: Instant::now(), trace, code: None, _open: open };
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
        let entered = this.call.trace.span.enter();
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
        let code = self.code.unwrap_or(Code::Cancelled) as usize;
        self.trace.span.in_scope(|| debug!(code = CODES[code], "call finished"));
        self.trace.end(CODES[code]);
        self.metrics.finished(code, self.begun.elapsed());
    }
}

fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_name_at_its_number() {
        for (number, name) in CODES.iter().enumerate() {
            let code = Code::from_i32(number.try_into().unwrap());
            let told = format!("{code:?}").to_uppercase();
            assert_eq!((code as usize, told), (number, name.replace('_', "")));
        }
    }
}
