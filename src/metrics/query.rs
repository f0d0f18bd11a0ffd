//! What happens to queries, every series of a kind resolved.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use prometheus::{Gauge, Histogram, IntCounter};

use crate::model::{FailureReason, Outcome, RejectReason, StopStage};

use super::{
    family::Families,
    label::{Label, NO_TYPE, OTHER, RETRIED, Values},
    table::Id,
};

/// The queries of all kinds.
#[derive(Debug)]
pub struct QueryMetrics {
    families: Arc<Families>,
    kinds: Mutex<HashMap<Box<str>, Arc<KindQueryMetrics>>>,
}

/// The queries of one kind.
#[derive(Debug)]
pub struct KindQueryMetrics {
    wait_seconds: Histogram,
    duration_seconds: Histogram,
    /// By the types that are configured.
    results: RwLock<HashMap<Box<str>, Results>>,
    without_type: Results,
    of_other_type: Results,
    failures: [IntCounter; FailureReason::ALL.len()],
    rejections: [IntCounter; RejectReason::ALL.len()],
    retries: [IntCounter; RETRIED.len()],
    dead_letters: Gauge,
    became_dead: IntCounter,
    stalls: IntCounter,
    dropped: IntCounter,
    cancel_seconds: [Histogram; StopStage::ALL.len()],
}

/// How queries of one type ended.
#[derive(Debug)]
struct Results {
    complete: IntCounter,
    error: IntCounter,
    cancelled: IntCounter,
    rejected: IntCounter,
}

impl QueryMetrics {
    pub(super) fn new(families: Arc<Families>) -> Self {
        Self { families, kinds: Mutex::default() }
    }

    /// The series of one kind, the same whenever they are asked for.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Arc<KindQueryMetrics> {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get(kind) {
            return known.clone();
        }
        self.families.begin(Some((Label::Kind, &[kind])), &[NO_TYPE, OTHER]);
        let new = Arc::new(KindQueryMetrics::new(&self.families, kind));
        kinds.insert(kind.into(), new.clone());
        new
    }

    /// Counts results of these types by themselves from now on; all others share a series.
    pub(super) fn know_types(&self, kind: &str, types: &[&str]) {
        let metrics = self.kind(kind);
        let mut results = metrics.results.write();
        for name in types {
            results.entry((*name).into()).or_insert_with(|| Results::new(&self.families, kind, name));
        }
    }
}

impl KindQueryMetrics {
    fn new(families: &Families, kind: &str) -> Self {
        let failed = |reason: &str| families.counter(Id::QueryFailures, &[kind, reason]);
        Self {
            wait_seconds: families.histogram(Id::QueueWait, &[kind]),
            duration_seconds: families.histogram(Id::QueryDuration, &[kind]),
            results: RwLock::default(),
            without_type: Results::new(families, kind, NO_TYPE),
            of_other_type: Results::new(families, kind, OTHER),
            failures: FailureReason::ALL.map(|reason| failed(reason.name())),
            rejections: RejectReason::ALL.map(|reason| failed(reason.name())),
            retries: RETRIED.map(|reason| families.counter(Id::QueryRetries, &[kind, reason.name()])),
            dead_letters: families.gauge(Id::DeadLetters, &[kind]),
            became_dead: families.counter(Id::DeadLettersTotal, &[kind]),
            stalls: families.counter(Id::ReaderStalls, &[kind]),
            dropped: families.counter(Id::EventsDropped, &[kind]),
            cancel_seconds: StopStage::ALL.map(|stage| families.histogram(Id::Cancel, &[kind, stage.name()])),
        }
    }

    /// A worker got a query, so long after its submit.
    pub fn claimed(&self, wait: Duration) {
        self.wait_seconds.observe(wait.as_secs_f64());
    }

    /// An attempt failed and is followed by another.
    pub fn retried(&self, reason: FailureReason) {
        let [died, reported] = &self.retries;
        if reason == FailureReason::Reported { reported.inc() } else { died.inc() }
    }

    /// A query ended, so long after its submit, and after the cancel that ended it, if one did.
    pub fn ended(&self, query_type: Option<&str>, outcome: &Outcome, took: Duration, cancelling: Duration) {
        self.duration_seconds.observe(took.as_secs_f64());
        match outcome {
            Outcome::Complete { .. } => {}
            Outcome::Error(failure) => self.failures[failure.reason as usize].inc(),
            Outcome::Rejected { reason, .. } => self.rejections[*reason as usize].inc(),
            Outcome::Cancelled { stage, .. } => self.cancel_seconds[*stage as usize].observe(cancelling.as_secs_f64()),
        }
        let Some(query_type) = query_type else { return self.without_type.count(outcome) };
        self.results.read().get(query_type).unwrap_or(&self.of_other_type).count(outcome);
    }

    /// A query ended as a dead letter.
    pub fn became_dead_letter(&self) {
        self.became_dead.inc();
    }

    /// A dead letter is kept.
    pub fn dead_letter_kept(&self) {
        self.dead_letters.inc();
    }

    /// A dead letter that was kept no longer is.
    pub fn dead_letter_gone(&self) {
        self.dead_letters.dec();
    }

    /// A worker has to wait for slow readers.
    pub fn stalled(&self) {
        self.stalls.inc();
    }

    /// A full log lost its oldest events.
    pub fn dropped(&self, events: usize) {
        self.dropped.inc_by(events as u64);
    }
}

impl Results {
    fn new(families: &Families, kind: &str, query_type: &str) -> Self {
        let Values::Fixed(outcomes) = Label::Outcome.values() else { unreachable!("outcomes are fixed") };
        let counters: Vec<IntCounter> = outcomes
            .iter()
            .map(|outcome| families.counter(Id::QueryResults, &[kind, query_type, outcome[0]]))
            .collect();
        let [complete, error, cancelled, rejected] = counters.try_into().expect("there are four outcomes");
        Self { complete, error, cancelled, rejected }
    }

    fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Complete { .. } => self.complete.inc(),
            Outcome::Error(_) => self.error.inc(),
            Outcome::Cancelled { .. } => self.cancelled.inc(),
            Outcome::Rejected { .. } => self.rejected.inc(),
        }
    }
}
