//! The way of a query from the call that brought it to the worker that runs it: a span for each part of it.
//!
//! ```text
//! rpc       a call, from its request to the end of its response
//!   query   from submit to the end, however long it waits; for the log only at debug
//!     attempt   one worker's go at it; stands alone where there is no span of the query
//! ```

mod context;

use http::HeaderMap;
use tracing::{Span, debug, debug_span, field, info_span};

use crate::model::{Outcome, QueryId, QuerySpec, WorkerId};

pub use context::{Context, TraceId};

/// A call as it is traced.
#[derive(Debug)]
pub struct CallTrace {
    /// Everything logged about the call is logged within it.
    pub span: Span,
    /// What the call's queries belong to.
    pub context: Option<Context>,
}

impl CallTrace {
    #[must_use]
    pub fn begin(method: &str, headers: &HeaderMap) -> Self {
        let span = info_span!("rpc", method, trace = field::Empty);
        let context = Context::of_caller(headers);
        note(&span, context.as_ref());
        Self { span, context }
    }
}

/// What a query carries of the trace that it belongs to. Most carry none, and the others not for longer than they live.
#[derive(Debug)]
pub struct QueryTrace {
    log: Span,
    context: Option<Context>,
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
        if log.is_disabled() && caller.is_none() {
            return None;
        }
        Some(Box::new(Self { log, context: caller }))
    }

    #[must_use]
    pub fn link(&self) -> Link {
        Link { log: self.log.clone(), context: self.context.clone() }
    }

    /// The query is over.
    pub fn end(self, outcome: &Outcome) {
        self.log.in_scope(|| debug!(state = %outcome.state(), "query over"));
    }
}

/// One worker's go at a query.
#[derive(Debug)]
pub struct Attempt {
    /// Everything logged about the attempt is logged within it.
    pub span: Span,
    context: Option<Context>,
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

impl Attempt {
    #[must_use]
    pub fn begin(link: Option<&Link>, of: Try<'_>) -> Self {
        let Try { query, spec, worker, attempt } = of;
        // Never within what happens to be logged at the moment: that may be another query's call.
        let parent = link.and_then(|link| link.log.id());
        let kind = &*spec.kind;
        let span = info_span!(
            parent: parent,
            "attempt",
            %query,
            kind,
            "type" = spec.query_type.as_deref(),
            worker = worker.0,
            attempt,
            trace = field::Empty
        );
        let context = link.and_then(|link| link.context.clone());
        note(&span, context.as_ref());
        Self { span, context }
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
