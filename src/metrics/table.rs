//! The table of every metric: its name, type, unit, labels and help. Series, documentation and tests follow from it.

use super::label::MetricLabel::{
    self, Cause, Code, Direction, Failure, Kind, Limit, Method, Outcome, QueryState, RefusalReason, RetryReason, Stage,
    Strategy, Transition, Type, Version, WorkerState,
};

/// One metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetricDefinition {
    pub name: &'static str,
    pub metric_type: MetricType,
    pub unit: MetricUnit,
    pub labels: &'static [MetricLabel],
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter,
    /// A counter of fractions.
    FloatCounter,
    Gauge,
    /// Of seconds.
    Histogram,
}

/// Unit of a metric's value. The name ends with it where it is a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricUnit {
    Seconds,
    Bytes,
    /// The name says of what.
    Count,
    /// The help says what each number means.
    State,
}

impl MetricUnit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::State => "state",
        }
    }
}

impl MetricType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter | Self::FloatCounter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl MetricDefinition {
    pub(super) fn has(&self, label: MetricLabel) -> bool {
        self.labels.contains(&label)
    }
}

/// Defines an id for each metric, and the table of all of them in the order of the ids.
macro_rules! metrics {
    ($($id:ident: $metric_type:ident $unit:ident $name:literal [$($label:ident),*] $help:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum MetricId { $($id),* }

        pub(super) const METRICS: &[MetricDefinition] = &[$(MetricDefinition {
            name: $name,
            metric_type: MetricType::$metric_type,
            unit: MetricUnit::$unit,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    BuildInfo: Gauge State "remuda_build_info" [Version]
        "Always 1; the label has the version.";
    StartTime: Gauge Seconds "remuda_start_time_seconds" []
        "Start time of the pool, in seconds since 1970.";

    Workers: Gauge Count "remuda_workers" [Kind, WorkerState]
        "Workers by state.";
    WorkersLimit: Gauge Count "remuda_workers_limit" [Kind, Limit]
        "Configured minimum and maximum of workers; 0 for a removed kind.";
    PoolWorkersLimit: Gauge Count "remuda_pool_workers_limit" []
        "Maximum of workers over all kinds (pool.max_workers).";
    WorkerTransitions: Counter Count "remuda_worker_transitions_total" [Kind, Transition]
        "Transitions of workers between states.";
    WorkerExits: Counter Count "remuda_worker_exits_total" [Kind, Cause]
        "Workers that ended, by cause.";
    WorkerRestarts: Counter Count "remuda_worker_restarts_total" [Kind]
        "Workers started to take the place of one that ended in failure.";
    WorkerStart: Histogram Seconds "remuda_worker_start_seconds" [Kind]
        "Time from a worker's start until it was ready.";
    WorkerSilence: Gauge Seconds "remuda_worker_silence_seconds" [Kind]
        "Longest time since a live worker of the kind last sent anything: the age of its heartbeat. 0 without workers.";
    WorkerMemory: Gauge Bytes "remuda_worker_memory_bytes" [Kind]
        "Resident memory of the kind's workers together, as last measured.";
    MemoryReserved: Gauge Bytes "remuda_memory_reserved_bytes" [Kind]
        "Memory reserved for the kind's workers.";
    MemoryBudget: Gauge Bytes "remuda_memory_budget_bytes" []
        "Memory that may be reserved for all workers together (pool.memory_budget); 0 if unlimited.";
    Evictions: Counter Count "remuda_evictions_total" [Kind, Strategy]
        "Workers stopped to make room for others.";
    Scalings: Counter Count "remuda_scalings_total" [Kind, Direction]
        "Decisions to change the number of workers.";
    CircuitState: Gauge State "remuda_circuit_state" [Kind]
        "Circuit breaker of the kind's starts: 0 closed (workers start), 1 half open (one just started again), 2 open (queries fail at once).";
    Serving: Gauge State "remuda_serving" [Kind]
        "1 if a query of the kind could start, else 0.";

    Queries: Gauge Count "remuda_queries" [Kind, QueryState]
        "Kept queries by state; ended ones are kept for a while.";
    QueueDepth: Gauge Count "remuda_queue_depth" [Kind]
        "Queries that wait for a worker.";
    QueueLimit: Gauge Count "remuda_queue_limit" []
        "Maximum of waiting queries over all kinds (queue.max_queries).";
    QueueOldest: Gauge Seconds "remuda_queue_oldest_seconds" [Kind]
        "Time since the oldest waiting query was submitted; 0 if none waits.";
    QueueWait: Histogram Seconds "remuda_queue_wait_seconds" [Kind]
        "Time from a query's submit until its dispatch to a worker.";
    QueryFirstMessage: Histogram Seconds "remuda_query_first_message_seconds" [Kind]
        "Time from a query's dispatch until its first message, for attempts that had one.";
    QueryDuration: Histogram Seconds "remuda_query_duration_seconds" [Kind]
        "Time from a query's submit until its final event.";
    QueryResults: Counter Count "remuda_query_results_total" [Kind, Type, Outcome]
        "Queries that ended, by outcome.";
    QueryFailures: Counter Count "remuda_query_failures_total" [Kind, Failure]
        "Queries that ended in an error or were rejected, by reason.";
    QueryRetries: Counter Count "remuda_query_retries_total" [Kind, RetryReason]
        "Failed attempts that were followed by another.";
    DeadLetters: Gauge Count "remuda_dead_letters" [Kind]
        "Kept dead letters.";
    DeadLettersTotal: Counter Count "remuda_dead_letters_total" [Kind]
        "Queries that became dead letters.";
    SubmitRefused: Counter Count "remuda_submit_refused_total" [RefusalReason]
        "Queries that were not accepted, by reason.";
    StaleFrames: Counter Count "remuda_stale_frames_total" [Kind]
        "Frames of workers dropped because their query was over.";
    ReaderStalls: Counter Count "remuda_reader_stalls_total" [Kind]
        "Waits of workers for slow readers of their results.";
    EventsDropped: Counter Count "remuda_events_dropped_total" [Kind]
        "Events dropped from full logs; their readers saw a gap if they had not read them.";
    Cancel: Histogram Seconds "remuda_cancel_seconds" [Kind, Stage]
        "Time from an accepted cancel until the query's end, by the stage of the stop that ended it.";

    GrpcRequests: Counter Count "remuda_grpc_requests_total" [Method, Code]
        "gRPC calls that ended, by status code.";
    GrpcSeconds: Histogram Seconds "remuda_grpc_seconds" [Method]
        "Duration of gRPC calls; of streams, until their end.";
    GrpcConnections: Gauge Count "remuda_grpc_connections" []
        "Open gRPC connections.";
    GrpcConnectionsLimit: Gauge Count "remuda_grpc_connections_limit" []
        "Maximum of open gRPC connections (server.max_connections).";

    ProcessCpu: FloatCounter Seconds "process_cpu_seconds_total" []
        "Processor time used by the server itself.";
    ProcessResident: Gauge Bytes "process_resident_memory_bytes" []
        "Resident memory of the server itself.";
    ProcessVirtual: Gauge Bytes "process_virtual_memory_bytes" []
        "Virtual memory of the server itself.";
    ProcessOpenFds: Gauge Count "process_open_fds" []
        "File descriptors that the server has open.";
    ProcessMaxFds: Gauge Count "process_max_fds" []
        "File descriptors that the server may have open.";
    ProcessThreads: Gauge Count "process_threads" []
        "Threads of the server.";
    ProcessStartTime: Gauge Seconds "process_start_time_seconds" []
        "Start time of the server's process, in seconds since 1970.";
}
