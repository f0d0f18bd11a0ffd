//! Counts and latencies of the queries of one round.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::CallFailure;

/// Three digits are more than a shared machine can reproduce.
const HISTOGRAM_DIGITS: u8 = 3;
/// Longer latencies count as this.
const LATENCY_MAX_NANOS: u64 = 3_600_000_000_000;

/// One round of load on one subject.
#[derive(Debug)]
pub(super) struct Round {
    pub counts: RoundCounts,
    pub took: Duration,
    /// Workers that were killed meanwhile.
    pub killed: u64,
}

#[derive(Debug)]
pub(super) struct RoundCounts {
    pub completed: u64,
    pub hung: u64,
    pub messages: u64,
    /// From the call to the end of its stream, in nanoseconds.
    pub latency: Histogram<u64>,
    /// From the call to the first message, in nanoseconds.
    pub first_message: Histogram<u64>,
    pub errors: BTreeMap<&'static str, ErrorStats>,
}

/// The failures with one gRPC status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorStats {
    pub code: &'static str,
    pub count: u64,
    /// The message of the first of them.
    pub example: String,
}

impl RoundCounts {
    pub(super) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_MAX_NANOS, HISTOGRAM_DIGITS).expect("the bounds are valid");
        let (latency, first_message) = (histogram(), histogram());
        Self { completed: 0, hung: 0, messages: 0, latency, first_message, errors: BTreeMap::new() }
    }

    pub(super) fn record_completed(&mut self, messages: u64, latency: Duration, first_message: Option<Duration>) {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.completed += 1;
        self.messages += messages;
        self.latency.saturating_record(nanos(latency));
        if let Some(first_message) = first_message {
            self.first_message.saturating_record(nanos(first_message));
        }
    }

    pub(super) fn record_failure(&mut self, CallFailure { code, message }: CallFailure) {
        self.errors.entry(code).or_insert(ErrorStats { code, count: 0, example: message }).count += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.hung += other.hung;
        self.messages += other.messages;
        self.latency.add(&other.latency).expect("both have the same bounds");
        self.first_message.add(&other.first_message).expect("both have the same bounds");
        for (code, errors) in &other.errors {
            let own = self.errors.entry(code).or_insert_with(|| ErrorStats { count: 0, ..errors.clone() });
            own.count += errors.count;
        }
    }

    pub(super) fn failed(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }
}
