//! Metrics of queries.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use prometheus::{Gauge, Histogram, IntCounter};

use crate::{
    model::{FailureReason, Outcome},
    state::QueryState,
};

use super::{
    family::MetricFamilies,
    label::{MetricLabel, NO_TYPE, OTHER},
    table::MetricId,
};

/// Metrics of the queries of all kinds.
#[derive(Debug)]
pub struct QueryMetrics {
    families: Arc<MetricFamilies>,
    kinds: Mutex<HashMap<Box<str>, Arc<KindQueryMetrics>>>,
}

/// Metrics of the queries of one kind. Series that every query touches are resolved; the others are looked up.
#[derive(Debug)]
pub struct KindQueryMetrics {
    families: Arc<MetricFamilies>,
    kind: Box<str>,
    wait_seconds: Histogram,
    duration_seconds: Histogram,
    /// By the types that are configured.
    outcomes: RwLock<HashMap<Box<str>, OutcomeCounters>>,
    outcomes_without_type: OutcomeCounters,
    outcomes_of_other_types: OutcomeCounters,
}

/// Counters of the ends of queries of one type, by the index of the final state.
#[derive(Debug)]
struct OutcomeCounters([Option<IntCounter>; QueryState::ALL.len()]);

impl QueryMetrics {
    pub(super) fn new(families: Arc<MetricFamilies>) -> Self {
        Self { families, kinds: Mutex::default() }
    }

    /// The metrics of one kind, created by the first call.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Arc<KindQueryMetrics> {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get(kind) {
            return known.clone();
        }
        self.families.create_series(Some((MetricLabel::Kind, &[kind])), &[NO_TYPE, OTHER]);
        let new = Arc::new(KindQueryMetrics::new(self.families.clone(), kind));
        kinds.insert(kind.into(), new.clone());
        new
    }

    pub(super) fn add_types(&self, kind: &str, types: &[&str]) {
        let metrics = self.kind(kind);
        let mut outcomes = metrics.outcomes.write();
        for name in types {
            outcomes.entry((*name).into()).or_insert_with(|| OutcomeCounters::new(&self.families, kind, name));
        }
    }
}

impl KindQueryMetrics {
    fn new(families: Arc<MetricFamilies>, kind: &str) -> Self {
        Self {
            kind: kind.into(),
            wait_seconds: families.histogram(MetricId::QueueWait, &[kind]),
            duration_seconds: families.histogram(MetricId::QueryDuration, &[kind]),
            outcomes: RwLock::default(),
            outcomes_without_type: OutcomeCounters::new(&families, kind, NO_TYPE),
            outcomes_of_other_types: OutcomeCounters::new(&families, kind, OTHER),
            families,
        }
    }

    fn counter(&self, id: MetricId) -> IntCounter {
        self.families.counter(id, &[&self.kind])
    }

    fn dead_letters(&self) -> Gauge {
        self.families.gauge(MetricId::DeadLetters, &[&self.kind])
    }

    /// Records the time from a query's submit to its dispatch.
    pub fn record_wait(&self, wait: Duration) {
        self.wait_seconds.observe(wait.as_secs_f64());
    }

    /// Counts a failed attempt that is followed by another.
    pub fn record_retry(&self, reason: FailureReason) {
        let reason = if reason == FailureReason::Reported { reason } else { FailureReason::WorkerDied };
        self.families.counter(MetricId::QueryRetries, &[&self.kind, reason.name()]).inc();
    }

    /// Records the end of a query, with the time since its submit, and since the cancel that ended it.
    pub fn record_end(&self, query_type: Option<&str>, outcome: &Outcome, took: Duration, cancelling: Duration) {
        self.duration_seconds.observe(took.as_secs_f64());
        let count_failure = |reason: &str| self.families.counter(MetricId::QueryFailures, &[&self.kind, reason]).inc();
        match outcome {
            Outcome::Complete { .. } => {}
            Outcome::Error(failure) => count_failure(failure.reason.name()),
            Outcome::Rejected { reason, .. } => count_failure(reason.name()),
            Outcome::Cancelled { stage, .. } => {
                let histogram = self.families.histogram(MetricId::Cancel, &[&self.kind, stage.name()]);
                histogram.observe(cancelling.as_secs_f64());
            }
        }
        let Some(query_type) = query_type else { return self.outcomes_without_type.count(outcome) };
        self.outcomes.read().get(query_type).unwrap_or(&self.outcomes_of_other_types).count(outcome);
    }

    /// Counts a query that ended as a dead letter.
    pub fn record_dead_letter(&self) {
        self.counter(MetricId::DeadLettersTotal).inc();
    }

    /// Counts a kept dead letter in.
    pub fn add_dead_letter(&self) {
        self.dead_letters().inc();
    }

    /// Counts a kept dead letter out.
    pub fn remove_dead_letter(&self) {
        self.dead_letters().dec();
    }

    /// Counts a wait of a worker for slow readers.
    pub fn record_stall(&self) {
        self.counter(MetricId::ReaderStalls).inc();
    }

    /// Counts events that were dropped from a full log.
    pub fn record_dropped_events(&self, events: usize) {
        self.counter(MetricId::EventsDropped).inc_by(events as u64);
    }
}

impl OutcomeCounters {
    fn new(families: &MetricFamilies, kind: &str, query_type: &str) -> Self {
        Self(QueryState::ALL.map(|state| {
            let labels = [kind, query_type, state.name()];
            state.is_terminal().then(|| families.counter(MetricId::QueryResults, &labels))
        }))
    }

    fn count(&self, outcome: &Outcome) {
        if let Some(counter) = &self.0[outcome.state() as usize] {
            counter.inc();
        }
    }
}
