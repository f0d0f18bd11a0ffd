//! What happens to gRPC calls and connections.

use std::{fmt, sync::Arc, time::Duration};

use prometheus::{Gauge, Histogram, IntCounter};

use super::{family::Families, float, table::Id};

/// The status codes of gRPC, each at its number.
pub const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The calls of one method.
#[derive(Debug)]
pub struct MethodMetrics {
    pub method: Box<str>,
    codes: [IntCounter; CODES.len()],
    seconds: Histogram,
}

/// The connections that are open.
#[derive(Clone)]
pub struct Connections {
    open: Gauge,
    limit: Gauge,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Connections);

impl MethodMetrics {
    pub(super) fn new(families: &Families, method: &str) -> Arc<Self> {
        Arc::new(Self {
            method: method.into(),
            codes: CODES.map(|code| families.counter(Id::GrpcRequests, &[method, code])),
            seconds: families.histogram(Id::GrpcSeconds, &[method]),
        })
    }

    /// Counts a call that has ended, with a status code's number.
    pub fn finished(&self, code: usize, took: Duration) {
        if let Some(counter) = self.codes.get(code) {
            counter.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }
}

impl Connections {
    pub(super) fn new(families: &Families) -> Self {
        let gauge = |id| families.gauge(id, &[]);
        Self { open: gauge(Id::GrpcConnections), limit: gauge(Id::GrpcConnectionsLimit) }
    }

    pub fn set_limit(&self, max: usize) {
        self.limit.set(float(max as u64));
    }

    #[must_use]
    pub fn opened(&self) -> OpenConnection {
        self.open.inc();
        OpenConnection(self.clone())
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connections({} of {})", self.open.get(), self.limit.get())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}
