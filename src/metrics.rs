//! Every metric there is: its name, its help, its labels. Other modules get resolved counters with verbs for names.

use std::{collections::HashMap, sync::Arc, time::Duration};

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

use crate::{
    config::Eviction,
    model::DeathCause,
    state::{QueryState, State, WorkerState},
};

/// From fifty microseconds to ten minutes: a cached answer and a long agent run both fall inside.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// All metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    workers: IntGaugeVec,
    queries: IntGaugeVec,
    queue_depth: IntGaugeVec,
    transitions: IntCounterVec,
    exits: IntCounterVec,
    start_seconds: HistogramVec,
    stale_frames: IntCounterVec,
    evictions: IntCounterVec,
    reserved_memory: IntGauge,
    rpcs: IntCounterVec,
    pub query: Arc<QueryMetrics>,
}

/// What happens to queries.
#[derive(Debug)]
pub struct QueryMetrics {
    results: IntCounterVec,
    wait_seconds: HistogramVec,
    duration_seconds: HistogramVec,
    retries: IntCounterVec,
}

/// What happens to the workers of one kind, every series resolved.
#[derive(Debug)]
pub struct KindMetrics {
    transitions: HashMap<(usize, usize), IntCounter>,
    exits: HashMap<DeathCause, IntCounter>,
    start_seconds: Histogram,
    stale_frames: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let query = Arc::new(QueryMetrics::new(&registry));
        let build = gauge(&registry, "remuda_build_info", "Always 1; the label tells the version.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let queries =
            gauge(&registry, "remuda_queries", "Queries that are kept, by kind and state.", &["kind", "state"]);
        let queue_depth = gauge(&registry, "remuda_queue_depth", "Queries that wait for a worker, by kind.", &["kind"]);
        Self {
            queries,
            queue_depth,
            workers: gauge(&registry, "remuda_workers", "Workers by kind and state.", &["kind", "state"]),
            transitions: counter(
                &registry,
                "remuda_worker_transitions_total",
                "State transitions of workers.",
                &["kind", "from", "to"],
            ),
            exits: counter(&registry, "remuda_worker_exits_total", "Ends of workers by cause.", &["kind", "cause"]),
            start_seconds: histogram(
                &registry,
                "remuda_worker_start_seconds",
                "Time from spawn to ready, in seconds.",
                &["kind"],
            ),
            stale_frames: counter(
                &registry,
                "remuda_stale_frames_total",
                "Frames dropped because their query was over.",
                &["kind"],
            ),
            evictions: counter(
                &registry,
                "remuda_evictions_total",
                "Workers that were stopped to make room, by strategy.",
                &["kind", "strategy"],
            ),
            reserved_memory: register(
                &registry,
                IntGauge::new("remuda_memory_reserved_bytes", "Memory set aside for workers, in bytes."),
            ),
            rpcs: counter(&registry, "remuda_grpc_requests_total", "Finished gRPC calls.", &["method", "code"]),
            registry,
            query,
        }
    }

    /// Resolves the series of one kind, so that they stand at zero from the start.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Arc<KindMetrics> {
        self.query.begin(kind);
        for state in QueryState::ALL {
            self.queries.with_label_values(&[kind, state.name()]);
        }
        self.queue_depth.with_label_values(&[kind]);
        for strategy in Eviction::ALL {
            self.evictions.with_label_values(&[kind, strategy.name()]);
        }
        let transition = |(from, to): &(WorkerState, WorkerState)| {
            let counter = self.transitions.with_label_values(&[kind, from.name(), to.name()]);
            ((from.index(), to.index()), counter)
        };
        Arc::new(KindMetrics {
            transitions: WorkerState::TABLE.iter().map(transition).collect(),
            exits: DeathCause::ALL
                .iter()
                .map(|cause| (*cause, self.exits.with_label_values(&[kind, cause.name()])))
                .collect(),
            start_seconds: self.start_seconds.with_label_values(&[kind]),
            stale_frames: self.stale_frames.with_label_values(&[kind]),
        })
    }

    /// Counts a worker that was stopped to make room.
    pub fn evicted(&self, kind: &str, strategy: &str) {
        self.evictions.with_label_values(&[kind, strategy]).inc();
    }

    pub fn set_reserved_memory(&self, bytes: u64) {
        self.reserved_memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a finished call. Both labels come from fixed lists.
    pub fn rpc_finished(&self, method: &str, code: &str) {
        self.rpcs.with_label_values(&[method, code]).inc();
    }

    /// Sets how many workers of a kind are in each state.
    pub fn set_workers(&self, kind: &str, states: &[WorkerState]) {
        for state in WorkerState::ALL {
            let count = states.iter().filter(|found| *found == state).count();
            self.workers.with_label_values(&[kind, state.name()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub fn set_queries(&self, counts: &[(Arc<str>, QueryState, usize)]) {
        for (kind, state, count) in counts {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.queries.with_label_values(&[&**kind, state.name()]).set(count);
            if *state == QueryState::Pending {
                self.queue_depth.with_label_values(&[&**kind]).set(count);
            }
        }
    }

    /// The text that Prometheus scrapes.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a registered metric can be written");
        String::from_utf8(text).expect("the text format is UTF-8")
    }
}

impl QueryMetrics {
    fn new(registry: &Registry) -> Self {
        Self {
            results: counter(registry, "remuda_query_results_total", "Ended queries by outcome.", &["kind", "outcome"]),
            wait_seconds: histogram(
                registry,
                "remuda_queue_wait_seconds",
                "Time from submit to dispatch, in seconds.",
                &["kind"],
            ),
            duration_seconds: histogram(
                registry,
                "remuda_query_duration_seconds",
                "Time from submit to the final event, in seconds.",
                &["kind"],
            ),
            retries: counter(
                registry,
                "remuda_query_retries_total",
                "Attempts that were followed by another.",
                &["kind"],
            ),
        }
    }

    /// Has every series of a kind stand at zero.
    fn begin(&self, kind: &str) {
        self.retries.with_label_values(&[kind]);
        for state in QueryState::ALL.iter().filter(|state| state.is_terminal()) {
            self.results.with_label_values(&[kind, state.name()]);
        }
        self.wait_seconds.with_label_values(&[kind]);
        self.duration_seconds.with_label_values(&[kind]);
    }

    pub fn claimed(&self, kind: &str, wait: Duration) {
        self.wait_seconds.with_label_values(&[kind]).observe(wait.as_secs_f64());
    }

    pub fn retried(&self, kind: &str) {
        self.retries.with_label_values(&[kind]).inc();
    }

    pub fn ended(&self, kind: &str, state: QueryState, duration: Duration) {
        self.results.with_label_values(&[kind, state.name()]).inc();
        self.duration_seconds.with_label_values(&[kind]).observe(duration.as_secs_f64());
    }
}

impl KindMetrics {
    pub fn worker_moved(&self, from: WorkerState, to: WorkerState) {
        if let Some(counter) = self.transitions.get(&(from.index(), to.index())) {
            counter.inc();
        }
    }

    pub fn worker_ended(&self, cause: DeathCause) {
        if let Some(counter) = self.exits.get(&cause) {
            counter.inc();
        }
    }

    pub fn started(&self, took: Duration) {
        self.start_seconds.observe(took.as_secs_f64());
    }

    pub fn stale_frame(&self) {
        self.stale_frames.inc();
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("metric names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("each metric is registered once");
    collector
}

fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

fn histogram(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
    register(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels))
}
