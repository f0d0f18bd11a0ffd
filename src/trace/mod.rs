//! The way of a query from the call that brought it to the worker that runs it: a span for each part of it.
//!
//! ```text
//! rpc       a call, from its request to the end of its response
//!   query   from submit to the end, however long it waits; for the log only at debug
//!     attempt   one worker's go at it; stands alone where there is no span of the query
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

pub use context::{Context, TraceId};
pub use export::Export;

use export::Exported;

/// Who asks this asks often, and it is no work: traces of it would only hide the others.
const NOT_EXPORTED: &str = "remuda.v1.WorkerPool/Health";
/// The service whose calls come often.
const OFTEN: &str = "remuda.v1.WorkerPool/";
/// The codes that say that the server failed, not the caller.
const OUR_FAULT: [&str; 6] = ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// A call as it is traced.
#[derive(Debug)]
pub struct CallTrace {
    /// Everything logged about the call is logged within it.
    pub span: Span,
    /// What the call's queries belong to.
    pub context: Option<Context>,
    exported: Option<Exported>,
}

impl CallTrace {
    #[must_use]
    pub fn begin(method: &str, headers: &HeaderMap) -> Self {
        // Queries come by the thousand, and what their calls tell of them is told only to those who want details.
        let span = if method.starts_with(OFTEN) {
            debug_span!("rpc", method, trace = field::Empty)
        } else {
            info_span!("rpc", method, trace = field::Empty)
        };
        let caller = Context::of_caller(headers);
        let wanted = caller.is_some() || (method.starts_with("remuda.v1.") && method != NOT_EXPORTED);
        let exported = wanted.then(|| Exported::begin(caller.as_ref(), true, || call(method))).flatten();
        let context = exported.as_ref().map(Exported::context).or(caller);
        note(&span, context.as_ref());
        Self { span, context, exported }
    }

    /// The last of the response has left, with the gRPC code of this name.
    pub fn end(&mut self, code: &'static str) {
        let Some(exported) = &mut self.exported else { return };
        exported.set(KeyValue::new("rpc.response.status_code", code));
        if OUR_FAULT.contains(&code) {
            exported.failed(code);
        }
    }
}

/// What a query carries of the trace that it belongs to. Most carry none, and the others not for longer than they live.
#[derive(Debug)]
pub struct QueryTrace {
    log: Span,
    context: Option<Context>,
    exported: Option<Exported>,
}

/// What an attempt knows of its query's trace.
#[derive(Debug, Clone)]
pub struct Link {
    log: Span,
    context: Option<Context>,
}

impl QueryTrace {
    /// `None` if nobody asked: a long queue is to stay small.
    #[must_use]
    pub fn begin(query: &QueryId, spec: &QuerySpec, caller: Option<Context>) -> Option<Box<Self>> {
        let log = debug_span!("query", %query, kind = &*spec.kind, "type" = spec.query_type.as_deref());
        let exported = Exported::begin(caller.as_ref(), false, || waiting(query, spec));
        let context = exported.as_ref().map(Exported::context).or(caller);
        if log.is_disabled() && context.is_none() {
            return None;
        }
        Some(Box::new(Self { log, context, exported }))
    }

    #[must_use]
    pub fn link(&self) -> Link {
        Link { log: self.log.clone(), context: self.context.clone() }
    }

    /// The query is over.
    pub fn end(mut self, outcome: &Outcome) {
        if let Some(mut exported) = self.exported.take() {
            exported.set(KeyValue::new("remuda.state", outcome.state().to_string()));
            match outcome {
                Outcome::Error(failure) => exported.failed(&failure.message),
                Outcome::Rejected { message, .. } => exported.failed(message),
                Outcome::Complete { .. } | Outcome::Cancelled { .. } => {}
            }
        }
        self.log.in_scope(|| debug!(state = %outcome.state(), "query over"));
    }
}

impl Drop for QueryTrace {
    fn drop(&mut self) {
        if let Some(exported) = &mut self.exported {
            // It was refused, or is another submit of a query that is here already.
            exported.rename("query not taken");
        }
    }
}

/// One worker's go at a query.
#[derive(Debug)]
pub struct Attempt {
    /// Only if details are logged. Most attempts go well, and then there is nothing else to say of them.
    log: Span,
    context: Option<Context>,
    exported: Option<Exported>,
}

/// Who tries what.
#[derive(Debug, Clone, Copy)]
pub struct Try<'a> {
    pub query: &'a QueryId,
    pub spec: &'a QuerySpec,
    pub worker: WorkerId,
    /// From 1.
    pub attempt: u32,
}

/// Two levels, one set of fields.
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

impl Attempt {
    #[must_use]
    pub fn begin(link: Option<&Link>, of: Try<'_>) -> Self {
        // Never within what happens to be logged at the moment: that may be another query's call.
        let log = attempt_span!(debug_span, link.and_then(|link| link.log.id()), of);
        let parent = link.and_then(|link| link.context.as_ref());
        let exported = Exported::begin(parent, false, || trying(of));
        let context = exported.as_ref().map(Exported::context).or_else(|| parent.cloned());
        note(&log, context.as_ref());
        Self { log, context, exported }
    }

    /// For what is told to those who want details.
    #[must_use]
    pub fn details(&self) -> &Span {
        &self.log
    }

    /// For what is told to everyone.
    #[must_use]
    pub fn span(&self, of: Try<'_>) -> Span {
        if !self.log.is_disabled() {
            return self.log.clone();
        }
        let span = attempt_span!(info_span, None, of);
        note(&span, self.context.as_ref());
        span
    }

    /// The worker is done with it, or the worker's end was its end too. Gives the span for what is left to log.
    #[must_use]
    pub fn end(mut self, trouble: Option<&str>, of: Try<'_>) -> Span {
        let Some(trouble) = trouble else { return self.log };
        if let Some(exported) = &mut self.exported {
            exported.failed(trouble);
        }
        self.span(of)
    }

    /// The worker was gone before it knew of it: the query has lost nothing.
    pub fn undelivered(self) {
        if let Some(mut exported) = self.exported {
            exported.rename("attempt not delivered");
        }
    }

    /// What the worker is told, so that its own spans find their place. The caller's, to the letter, if we export no spans:
    /// then ours would be a parent that nobody ever sees.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        self.context.as_ref().map(Context::traceparent)
    }
}

/// Lets the log be searched by the trace.
fn note(span: &Span, context: Option<&Context>) {
    if let Some(context) = context {
        span.record("trace", field::display(context.trace));
    }
}

fn call(method: &str) -> SpanBuilder {
    let attributes = [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method.to_owned())];
    SpanBuilder::from_name(method.to_owned()).with_kind(SpanKind::Server).with_attributes(attributes)
}

fn waiting(query: &QueryId, spec: &QuerySpec) -> SpanBuilder {
    let mut attributes = vec![
        KeyValue::new("remuda.query", query.to_string()),
        KeyValue::new("remuda.kind", spec.kind.clone()),
        KeyValue::new("remuda.priority", i64::from(spec.priority)),
    ];
    attributes.extend(spec.query_type.as_deref().map(|name| KeyValue::new("remuda.type", name.to_owned())));
    SpanBuilder::from_name("query").with_kind(SpanKind::Internal).with_attributes(attributes)
}

fn trying(of: Try<'_>) -> SpanBuilder {
    let attributes = [
        KeyValue::new("remuda.query", of.query.to_string()),
        KeyValue::new("remuda.kind", of.spec.kind.clone()),
        KeyValue::new("remuda.worker", i64::try_from(of.worker.0).unwrap_or(i64::MAX)),
        KeyValue::new("remuda.attempt", i64::from(of.attempt)),
    ];
    SpanBuilder::from_name("attempt").with_kind(SpanKind::Client).with_attributes(attributes)
}
