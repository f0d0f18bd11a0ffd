//! Metrics of the workers of one kind.

use std::{sync::Arc, time::Duration};

use prometheus::{Histogram, IntCounter};

use crate::{
    config::Eviction,
    model::DeathCause,
    state::{CircuitState, State, WorkerState},
};

use super::{family::MetricFamilies, table::MetricId, to_f64};

const STATES: usize = WorkerState::ALL.len();

/// Metrics of a kind's workers. Series that every query touches are resolved; the others are looked up.
#[derive(Debug)]
pub struct KindMetrics {
    families: Arc<MetricFamilies>,
    kind: Box<str>,
    /// At `from * STATES + to`; `None` where there is no such transition.
    transitions: Vec<Option<IntCounter>>,
    first_message_seconds: Histogram,
}

/// The gauges of a kind at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct KindSnapshot {
    /// Number of workers in each state, by its index.
    pub workers: [usize; STATES],
    pub min: usize,
    pub max: usize,
    /// Time since the most silent live worker last sent anything.
    pub silence: Duration,
    /// Measured memory, in bytes.
    pub memory: u64,
    pub reserved: u64,
    pub circuit: CircuitState,
    pub serving: bool,
    /// Time since the oldest waiting query was submitted.
    pub oldest: Duration,
}

impl KindMetrics {
    pub(super) fn new(families: Arc<MetricFamilies>, kind: &str) -> Self {
        let mut transitions = vec![None; STATES * STATES];
        for (from, to) in WorkerState::TABLE {
            let counter = families.counter(MetricId::WorkerTransitions, &[kind, from.name(), to.name()]);
            transitions[from.index() * STATES + to.index()] = Some(counter);
        }
        let first_message_seconds = families.histogram(MetricId::QueryFirstMessage, &[kind]);
        Self { families, kind: kind.into(), transitions, first_message_seconds }
    }

    fn count(&self, id: MetricId, label: &str) {
        self.families.counter(id, &[&self.kind, label]).inc();
    }

    pub fn record_transition(&self, from: WorkerState, to: WorkerState) {
        if let Some(counter) = &self.transitions[from.index() * STATES + to.index()] {
            counter.inc();
        }
    }

    pub fn record_exit(&self, cause: DeathCause) {
        self.count(MetricId::WorkerExits, cause.name());
    }

    /// Counts workers that were started in the place of failed ones.
    pub fn record_restarts(&self, workers: usize) {
        self.families.counter(MetricId::WorkerRestarts, &[&self.kind]).inc_by(workers as u64);
    }

    /// Records the time from a worker's start until it was ready.
    pub fn record_start(&self, took: Duration) {
        self.families.histogram(MetricId::WorkerStart, &[&self.kind]).observe(took.as_secs_f64());
    }

    /// Records the time from a query's dispatch to its first message.
    pub fn record_first_message(&self, took: Duration) {
        self.first_message_seconds.observe(took.as_secs_f64());
    }

    pub fn record_stale_frame(&self) {
        self.families.counter(MetricId::StaleFrames, &[&self.kind]).inc();
    }

    pub fn record_eviction(&self, strategy: Eviction) {
        self.count(MetricId::Evictions, strategy.name());
    }

    /// Counts a decision to change the number of workers.
    pub fn record_scaling(&self, from: usize, to: usize) {
        self.count(MetricId::Scalings, if to > from { "up" } else { "down" });
    }

    pub fn set_gauges(&self, now: &KindSnapshot) {
        let set = |id, value| self.families.gauge(id, &[&self.kind]).set(value);
        let set_labelled = |id, label, count| self.families.gauge(id, &[&self.kind, label]).set(to_f64(count as u64));
        for (state, workers) in WorkerState::ALL.into_iter().zip(now.workers) {
            set_labelled(MetricId::Workers, state.name(), workers);
        }
        set_labelled(MetricId::WorkersLimit, "min", now.min);
        set_labelled(MetricId::WorkersLimit, "max", now.max);
        set(MetricId::WorkerSilence, now.silence.as_secs_f64());
        set(MetricId::WorkerMemory, to_f64(now.memory));
        set(MetricId::MemoryReserved, to_f64(now.reserved));
        let circuit = match now.circuit {
            CircuitState::Closed => 0.0,
            CircuitState::HalfOpen => 1.0,
            CircuitState::Open => 2.0,
        };
        set(MetricId::CircuitState, circuit);
        set(MetricId::Serving, f64::from(u8::from(now.serving)));
        set(MetricId::QueueOldest, now.oldest.as_secs_f64());
    }
}
