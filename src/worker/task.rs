//! A query on its way to a worker: the line that tells the worker of it, and what its driver has to know.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use tracing::trace;

use crate::{
    broker::{Claim, Lease},
    protocol::PoolFrame,
    trace::Attempt,
};

use super::{PoolWorker, running::try_of};

/// A query on its way to the worker's driver.
#[derive(Debug)]
pub(super) struct Task {
    pub lease: Lease,
    pub request_id: String,
    pub begun: Instant,
    /// The limit that applies, for the message, and when it is reached.
    pub timeout: Option<(Duration, Instant)>,
    pub attempt: Attempt,
}

/// An attempt that the worker does not know of yet.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub line: BytesMut,
    pub attempt: Attempt,
    request_id: String,
    begun: Instant,
    timeout: Option<(Duration, Instant)>,
}

impl Dispatch {
    /// `number` is the attempt's among all that this worker has had.
    pub(super) fn new(worker: &PoolWorker, claim: &Claim, number: u64, begun: Instant) -> Self {
        let spec = claim.lease.spec();
        let attempt = claim.lease.attempts().attempt;
        let request_id = format!("{}-{number}", worker.id);
        let limit = [spec.timeout().or(worker.kind.timeout), claim.deadline].into_iter().flatten().min();
        let timeout = limit.and_then(|limit| Some((limit, begun.checked_add(limit)?)));
        let traced = Attempt::begin(claim.trace.as_ref(), try_of(&claim.lease, worker.id));
        let mut line = BytesMut::with_capacity(spec.payload.len() + 256);
        PoolFrame::Query {
            request_id: &request_id,
            payload: spec.payload.as_str(),
            attempt: Some(attempt),
            query_type: spec.query_type.as_deref(),
            key: spec.key.as_deref(),
            session_id: spec.session_id(),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            traceparent: traced.traceparent().as_deref(),
        }
        .encode(&mut line);
        traced.details().in_scope(|| trace!(frame = "query", bytes = line.len(), "frame to the worker"));
        Self { line, attempt: traced, request_id, begun, timeout }
    }

    /// Whether its time is over so soon.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        self.timeout.is_some_and(|(limit, _)| limit <= time)
    }

    /// It is the worker's now.
    pub(super) fn sent(self, lease: Lease) -> Task {
        let Self { request_id, begun, timeout, attempt, .. } = self;
        Task { lease, request_id, begun, timeout, attempt }
    }
}
