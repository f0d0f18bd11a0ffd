//! A call from its request to the end of its answer: whether it is let through, who answers it, and how it went.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response, request::Parts};
use http_body_util::Full;
use tonic::{Code, Status, body::Body, service::Routes};
use tower::Service;
use tracing::{Instrument, debug};

use crate::{
    metrics::{CODES, MethodMetrics, Metrics},
    places::{Guest, OpenCall},
    trace::CallTrace,
};

use super::{
    access::Access,
    answer::{Answer, send},
    arrival::Arriving,
    errors, grpc,
    worker_pool::WorkerPoolService,
};

/// What calls are answered by.
#[derive(Debug)]
pub(super) struct Api {
    pub methods: Methods,
    pub access: Access,
    /// The time in which a request must have arrived.
    pub request_timeout: Duration,
    /// Queries come by this one.
    pub worker_pool: WorkerPoolService,
    pub others: Routes,
}

/// How calls went, by method and status code.
#[derive(Debug)]
pub(super) struct Methods {
    known: HashMap<Box<str>, Arc<MethodMetrics>, RandomState>,
    /// For paths that do not exist. They share one name: clients can make up any number.
    other: Arc<MethodMetrics>,
}

/// A call until its end, however that comes.
#[derive(Debug)]
pub(super) struct Call {
    metrics: Arc<MethodMetrics>,
    begun: Instant,
    trace: CallTrace,
    code: Option<Code>,
    /// Its connection is not idle meanwhile.
    _open: OpenCall,
}

/// Answers a call, unless its client takes it back.
pub(super) fn answer(
    api: Arc<Api>,
    guest: Arc<Guest>,
    mut request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> impl Future<Output = ()> {
    let mut call = api.methods.begin(&request, guest.clone());
    if let Some(context) = &call.trace.context {
        request.extensions_mut().insert(context.clone());
    }
    let span = call.trace.span.clone();
    let answering = async move {
        let response = {
            let mut handling = pin!(api.handle(&guest, request));
            poll_fn(|context| match handling.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => respond.poll_reset(context).map(|_| None),
            })
            .await
        };
        if let Some(response) = response
            && let Err(error) = send(response, respond, |headers| call.note(headers)).await
        {
            debug!(%error, "a client left before the end of its answer");
        }
        drop(call);
    };
    answering.instrument(span)
}

impl Api {
    async fn handle(&self, guest: &Guest, request: Request<RecvStream>) -> Response<Answer> {
        if let Err(status) = self.access.check(&request) {
            return grpc::refusal(status);
        }
        guest.settle();
        let (parts, body) = request.into_parts();
        let body = Arriving::new(body, &parts, self.request_timeout);
        if let Some(method) = WorkerPoolService::method(&parts) {
            let answered = self.worker_pool.call(method, &parts, body).await;
            return answered.unwrap_or_else(grpc::refusal);
        }
        Box::pin(self.pass_on(parts, body)).await.unwrap_or_else(grpc::refusal)
    }

    /// Has tonic answer. It gets only requests that are whole, so that it has nothing to find wrong but the message itself.
    async fn pass_on(&self, parts: Parts, body: Arriving) -> Result<Response<Answer>, Status> {
        if !self.methods.knows(&parts) {
            return Err(errors::unknown_method(parts.uri.path()));
        }
        let body = if body.is_conversation() {
            Body::new(body)
        } else {
            Body::new(Full::new(grpc::receive(&parts, body, self.worker_pool.max_message_bytes).await?))
        };
        let Ok(response) = self.others.clone().call(Request::from_parts(parts, body)).await;
        match Status::from_header_map(response.headers()) {
            // What our own services say has details.
            Some(status) if status.code() == Code::Internal && status.details().is_empty() => {
                Err(errors::undecodable(status.message()))
            }
            _ => Ok(response.map(Answer::Other)),
        }
    }
}

impl Methods {
    /// `methods` are the full names of all methods there are, such as `remuda.v1.WorkerPool/Submit`.
    pub(super) fn new(metrics: &Metrics, methods: &[String]) -> Self {
        let (known, other) = metrics.methods(methods);
        Self { known: known.into_iter().map(|method| (method.method.clone(), method)).collect(), other }
    }

    fn knows(&self, head: &Parts) -> bool {
        self.known.contains_key(head.uri.path().trim_start_matches('/'))
    }

    fn begin<A>(&self, request: &Request<A>, guest: Arc<Guest>) -> Call {
        let metrics = self.known.get(request.uri().path().trim_start_matches('/')).unwrap_or(&self.other).clone();
        let trace = CallTrace::begin(&metrics.method, request.headers());
        Call { metrics, begun: Instant::now(), trace, code: None, _open: guest.call() }
    }
}

impl Call {
    /// The status is among the trailers, or, without a message, among the headers.
    fn note(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get(&grpc::STATUS) {
            self.code = Some(Code::from_bytes(status.as_bytes()));
        }
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
