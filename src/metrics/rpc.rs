//! Metrics of gRPC calls and connections.

use std::{fmt, sync::Arc, time::Duration};

use prometheus::{Gauge, Histogram, IntCounter};

use super::{family::MetricFamilies, table::MetricId, to_f64};

/// Names of the gRPC status codes, each at its number.
pub const GRPC_CODES: [&str; 17] = [
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

/// Metrics of the calls of one method.
#[derive(Debug)]
pub struct MethodMetrics {
    pub method: Box<str>,
    codes: [IntCounter; GRPC_CODES.len()],
    seconds: Histogram,
}

/// Gauges of the open connections and their limit.
#[derive(Clone)]
pub struct ConnectionMetrics {
    open: Gauge,
    limit: Gauge,
}

/// Counts one connection as open until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard(ConnectionMetrics);

impl MethodMetrics {
    pub(super) fn new(families: &MetricFamilies, method: &str) -> Arc<Self> {
        Arc::new(Self {
            method: method.into(),
            codes: GRPC_CODES.map(|code| families.counter(MetricId::GrpcRequests, &[method, code])),
            seconds: families.histogram(MetricId::GrpcSeconds, &[method]),
        })
    }

    /// Records the end of a call with this status code.
    pub fn record_call(&self, code: usize, took: Duration) {
        if let Some(counter) = self.codes.get(code) {
            counter.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }
}

impl ConnectionMetrics {
    pub(super) fn new(families: &MetricFamilies) -> Self {
        let gauge = |id| families.gauge(id, &[]);
        Self { open: gauge(MetricId::GrpcConnections), limit: gauge(MetricId::GrpcConnectionsLimit) }
    }

    pub fn set_limit(&self, max: usize) {
        self.limit.set(to_f64(max as u64));
    }

    #[must_use]
    pub fn open(&self) -> ConnectionGuard {
        self.open.inc();
        ConnectionGuard(self.clone())
    }
}

impl fmt::Debug for ConnectionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionMetrics({} of {})", self.open.get(), self.limit.get())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}
