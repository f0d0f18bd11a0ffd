//! What happens to the workers of one kind, every series resolved.

use std::{collections::HashMap, time::Duration};

use prometheus::{Gauge, Histogram, IntCounter};

use crate::{
    config::Eviction,
    model::DeathCause,
    state::{CircuitState, State, WorkerState},
};

use super::{
    family::Families,
    float,
    label::{DIRECTIONS, LIMITS},
    table::Id,
};

const STATES: usize = WorkerState::ALL.len();

/// The counters of a kind's workers, and the gauges that are set when someone looks.
#[derive(Debug)]
pub struct KindMetrics {
    /// At `from * STATES + to`; `None` where there is no such move.
    transitions: Vec<Option<IntCounter>>,
    exits: HashMap<DeathCause, IntCounter>,
    restarts: IntCounter,
    start_seconds: Histogram,
    first_message_seconds: Histogram,
    stale_frames: IntCounter,
    evictions: [IntCounter; Eviction::ALL.len()],
    scalings: [IntCounter; DIRECTIONS.len()],
    workers: [Gauge; STATES],
    limits: [Gauge; LIMITS.len()],
    silence: Gauge,
    memory: Gauge,
    reserved: Gauge,
    circuit: Gauge,
    serving: Gauge,
    oldest: Gauge,
}

/// How a kind is at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct KindReading {
    /// How many there are in each state, by its index.
    pub workers: [usize; STATES],
    pub min: usize,
    pub max: usize,
    /// How long ago the most silent live worker last said anything.
    pub silence: Duration,
    /// Measured.
    pub memory: u64,
    pub reserved: u64,
    pub circuit: CircuitState,
    pub serving: bool,
    /// How long ago the oldest waiting query was submitted.
    pub oldest: Duration,
}

impl KindMetrics {
    pub(super) fn new(families: &Families, kind: &str) -> Self {
        let counter = |id| families.counter(id, &[kind]);
        let gauge = |id| families.gauge(id, &[kind]);
        let state = |index: usize| WorkerState::ALL[index].name();
        let mut transitions = vec![None; STATES * STATES];
        for (from, to) in WorkerState::TABLE {
            let values = [kind, from.name(), to.name()];
            transitions[from.index() * STATES + to.index()] = Some(families.counter(Id::WorkerTransitions, &values));
        }
        let exit = |cause: DeathCause| (cause, families.counter(Id::WorkerExits, &[kind, cause.name()]));
        Self {
            transitions,
            exits: DeathCause::ALL.map(exit).into(),
            restarts: counter(Id::WorkerRestarts),
            start_seconds: families.histogram(Id::WorkerStart, &[kind]),
            first_message_seconds: families.histogram(Id::QueryFirstMessage, &[kind]),
            stale_frames: counter(Id::StaleFrames),
            evictions: Eviction::ALL.map(|strategy| families.counter(Id::Evictions, &[kind, strategy.name()])),
            scalings: DIRECTIONS.map(|direction| families.counter(Id::Scalings, &[kind, direction])),
            workers: std::array::from_fn(|index| families.gauge(Id::Workers, &[kind, state(index)])),
            limits: LIMITS.map(|limit| families.gauge(Id::WorkersLimit, &[kind, limit])),
            silence: gauge(Id::WorkerSilence),
            memory: gauge(Id::WorkerMemory),
            reserved: gauge(Id::MemoryReserved),
            circuit: gauge(Id::CircuitState),
            serving: gauge(Id::Serving),
            oldest: gauge(Id::QueueOldest),
        }
    }

    pub fn worker_moved(&self, from: WorkerState, to: WorkerState) {
        if let Some(counter) = &self.transitions[from.index() * STATES + to.index()] {
            counter.inc();
        }
    }

    pub fn worker_ended(&self, cause: DeathCause) {
        if let Some(counter) = self.exits.get(&cause) {
            counter.inc();
        }
    }

    /// Workers were started in the place of others that had failed.
    pub fn restarted(&self, workers: usize) {
        self.restarts.inc_by(workers as u64);
    }

    /// A worker is ready, so long after its start.
    pub fn started(&self, took: Duration) {
        self.start_seconds.observe(took.as_secs_f64());
    }

    /// A query's first message came, so long after a worker got it.
    pub fn first_message(&self, took: Duration) {
        self.first_message_seconds.observe(took.as_secs_f64());
    }

    pub fn stale_frame(&self) {
        self.stale_frames.inc();
    }

    /// A worker was stopped to make room.
    pub fn evicted(&self, strategy: Eviction) {
        self.evictions[strategy as usize].inc();
    }

    /// It was decided to have more workers, or fewer.
    pub fn scaled(&self, from: usize, to: usize) {
        let [up, down] = &self.scalings;
        if to > from { up.inc() } else { down.inc() }
    }

    /// Sets the gauges to how the kind is now.
    pub fn set(&self, reading: &KindReading) {
        for (gauge, workers) in self.workers.iter().zip(reading.workers) {
            gauge.set(float(workers as u64));
        }
        let [min, max] = &self.limits;
        min.set(float(reading.min as u64));
        max.set(float(reading.max as u64));
        self.silence.set(reading.silence.as_secs_f64());
        self.memory.set(float(reading.memory));
        self.reserved.set(float(reading.reserved));
        self.circuit.set(match reading.circuit {
            CircuitState::Closed => 0.0,
            CircuitState::HalfOpen => 1.0,
            CircuitState::Open => 2.0,
        });
        self.serving.set(f64::from(u8::from(reading.serving)));
        self.oldest.set(reading.oldest.as_secs_f64());
    }
}
