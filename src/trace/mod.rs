//! Spans of a query, from the call that submits it to the worker that runs it.
//!
//! ```text
//! rpc       a call, from its request to the end of its response
//!   query   a query, from its submit to its end; in the log only at debug
//!     attempt   a query on one worker; has no parent where the query has no span
//! ```

mod context;
mod export;

use http::HeaderMap;
use opentelemetry::{
    KeyValue,
    trace::{SpanBuilder, SpanKind},
};
use tracing::{Span, debug, debug_span, field, info_span};

use crate::model::{Outcome, QueryId, QuerySpec, WorkerId};

pub use context::TraceContext;
pub use export::SpanExport;

use export::ExportedSpan;

/// Method that is called often and does no work: its traces would only hide the others.
const HEALTH_METHOD: &str = "remuda.v1.WorkerPool/Health";
/// Prefix of the methods that are called often.
const QUERY_METHODS: &str = "remuda.v1.WorkerPool/";
/// Codes for errors of the server rather than of the caller.
const SERVER_ERRORS: [&str; 6] =
    ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// Trace of one call.
#[derive(Debug)]
pub struct CallTrace {
    /// Span of all log lines about the call.
    pub span: Span,
    /// Parent of the call's queries.
    pub context: Option<TraceContext>,
    exported: Option<ExportedSpan>,
}

impl CallTrace {
    #[must_use]
    pub fn begin(method: &str, headers: &HeaderMap) -> Self {
        // Calls about queries come by the thousand, so their spans are logged at debug only.
        let span = if method.starts_with(QUERY_METHODS) {
            debug_span!("rpc", method, trace = field::Empty)
        } else {
            info_span!("rpc", method, trace = field::Empty)
        };
        let caller = context::from_headers(headers);
        let is_exported = caller.is_some() || (method.starts_with("remuda.v1.") && method != HEALTH_METHOD);
        let exported = is_exported.then(|| ExportedSpan::begin(caller.as_ref(), || call_span(method))).flatten();
        let context = exported.as_ref().map(ExportedSpan::context).or(caller);
        record_trace_id(&span, context.as_ref());
        Self { span, context, exported }
    }

    /// Ends the call with the gRPC code of this name.
    pub fn end(&mut self, code: &'static str) {
        let Some(exported) = &mut self.exported else { return };
        exported.set(KeyValue::new("rpc.response.status_code", code));
        if SERVER_ERRORS.contains(&code) {
            exported.set_error(code);
        }
    }
}

/// Trace of one query, from its submit to its end.
#[derive(Debug)]
pub struct QueryTrace {
    log: Span,
    context: Option<TraceContext>,
    exported: Option<ExportedSpan>,
}

/// The part of a query's trace that its attempts refer to.
#[derive(Debug, Clone)]
pub struct TraceLink {
    log: Span,
    context: Option<TraceContext>,
}

impl QueryTrace {
    /// `None` if neither the log nor a trace wants the query, so that a long queue stays small.
    #[must_use]
    pub fn begin(query: &QueryId, spec: &QuerySpec, caller: Option<TraceContext>) -> Option<Box<Self>> {
        let log = debug_span!("query", %query, kind = &*spec.kind, "type" = spec.query_type.as_deref());
        let exported = ExportedSpan::begin(caller.as_ref(), || query_span(query, spec));
        let context = exported.as_ref().map(ExportedSpan::context).or(caller);
        if log.is_disabled() && context.is_none() {
            return None;
        }
        Some(Box::new(Self { log, context, exported }))
    }

    #[must_use]
    pub fn link(&self) -> Box<TraceLink> {
        Box::new(TraceLink { log: self.log.clone(), context: self.context.clone() })
    }

    pub fn end(mut self, outcome: &Outcome) {
        if let Some(mut exported) = self.exported.take() {
            exported.set(KeyValue::new("remuda.state", outcome.state().to_string()));
            match outcome {
                Outcome::Error(failure) => exported.set_error(&failure.message),
                Outcome::Rejected { message, .. } => exported.set_error(message),
                Outcome::Complete { .. } | Outcome::Cancelled { .. } => {}
            }
        }
        self.log.in_scope(|| debug!(state = %outcome.state(), "query over"));
    }
}

impl Drop for QueryTrace {
    fn drop(&mut self) {
        if let Some(exported) = &mut self.exported {
            // It was refused, or is a second submit of a known query.
            exported.rename("query not taken");
        }
    }
}

/// Trace of one attempt: a query on one worker.
#[derive(Debug)]
pub struct AttemptTrace {
    /// Disabled unless debug lines are logged: most attempts succeed, and their lines are at debug.
    log: Span,
    context: Option<TraceContext>,
    exported: Option<ExportedSpan>,
}

/// The query, the worker and the number of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptInfo<'a> {
    pub query: &'a QueryId,
    pub spec: &'a QuerySpec,
    pub worker: WorkerId,
    /// From 1.
    pub attempt: u32,
}

/// A log span of an attempt, at the level of `$span`.
macro_rules! attempt_span {
    ($span:ident, $parent:expr, $of:expr) => {
        $span!(
            parent: $parent,
            "attempt",
            query = %$of.query,
            kind = &*$of.spec.kind,
            "type" = $of.spec.query_type.as_deref(),
            worker = $of.worker.0,
            attempt = $of.attempt,
            trace = field::Empty
        )
    };
}

impl AttemptTrace {
    #[must_use]
    pub fn begin(link: Option<&TraceLink>, of: AttemptInfo<'_>) -> Self {
        // The current span may be that of another query's call, so the parent is explicit.
        let log = attempt_span!(debug_span, link.and_then(|link| link.log.id()), of);
        let parent = link.and_then(|link| link.context.as_ref());
        let exported = ExportedSpan::begin(parent, || attempt_span_builder(of));
        let context = exported.as_ref().map(ExportedSpan::context).or_else(|| parent.cloned());
        record_trace_id(&log, context.as_ref());
        Self { log, context, exported }
    }

    /// Span of log lines at debug.
    #[must_use]
    pub fn debug_span(&self) -> &Span {
        &self.log
    }

    /// Span of log lines at info and above.
    #[must_use]
    pub fn span(&self, of: AttemptInfo<'_>) -> Span {
        if !self.log.is_disabled() {
            return self.log.clone();
        }
        let span = attempt_span!(info_span, None, of);
        record_trace_id(&span, self.context.as_ref());
        span
    }

    /// Ends the attempt, with the error if it failed. Returns the span for further log lines.
    #[must_use]
    pub fn end(mut self, error: Option<&str>, of: AttemptInfo<'_>) -> Span {
        let Some(error) = error else { return self.log };
        if let Some(exported) = &mut self.exported {
            exported.set_error(error);
        }
        self.span(of)
    }

    /// Ends an attempt whose worker was gone before it got the query.
    pub fn end_undelivered(self) {
        if let Some(mut exported) = self.exported {
            exported.rename("attempt not delivered");
        }
    }

    /// The `traceparent` for the worker: of this attempt, or the caller's own if the server exports no spans.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        self.context.as_ref().map(context::traceparent)
    }
}

/// Adds the trace id to a log span, so that the log can be searched by it.
fn record_trace_id(span: &Span, context: Option<&TraceContext>) {
    if let Some(context) = context {
        span.record("trace", field::display(context.trace_id()));
    }
}

fn call_span(method: &str) -> SpanBuilder {
    let attributes = [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method.to_owned())];
    SpanBuilder::from_name(method.to_owned()).with_kind(SpanKind::Server).with_attributes(attributes)
}

fn query_span(query: &QueryId, spec: &QuerySpec) -> SpanBuilder {
    let mut attributes = vec![
        KeyValue::new("remuda.query", query.to_string()),
        KeyValue::new("remuda.kind", spec.kind.clone()),
        KeyValue::new("remuda.priority", i64::from(spec.priority)),
    ];
    attributes.extend(spec.query_type.as_deref().map(|name| KeyValue::new("remuda.type", name.to_owned())));
    SpanBuilder::from_name("query").with_kind(SpanKind::Internal).with_attributes(attributes)
}

fn attempt_span_builder(of: AttemptInfo<'_>) -> SpanBuilder {
    let attributes = [
        KeyValue::new("remuda.query", of.query.to_string()),
        KeyValue::new("remuda.kind", of.spec.kind.clone()),
        KeyValue::new("remuda.worker", i64::try_from(of.worker.0).unwrap_or(i64::MAX)),
        KeyValue::new("remuda.attempt", i64::from(of.attempt)),
    ];
    SpanBuilder::from_name("attempt").with_kind(SpanKind::Client).with_attributes(attributes)
}
