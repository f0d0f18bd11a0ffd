//! The table of every metric: its name, its shape, its unit, what it tells and how it is labelled. Series, docs and tests come from it.

use super::label::Label::{
    self, Cause, Code, Direction, Failure, Kind, Limit, Method, Move, Outcome, QueryIs, Refused, Retried, Stage,
    Strategy, Type, Version, WorkerIs,
};

/// One metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Definition {
    pub name: &'static str,
    pub shape: Shape,
    pub unit: Unit,
    pub labels: &'static [Label],
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Counter,
    /// A counter of what comes in fractions.
    FineCounter,
    Gauge,
    /// Of seconds.
    Histogram,
}

/// What a value is a number of. The name ends with it where it is a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Bytes,
    /// Of the things that the name says.
    Count,
    /// A number that stands for something, as the help says.
    State,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::State => "state",
        }
    }
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter | Self::FineCounter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Definition {
    pub(super) fn is_of(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }
}

/// Defines an id for each metric, and the table of all of them in the order of the ids.
macro_rules! metrics {
    ($($id:ident: $shape:ident $unit:ident $name:literal [$($label:ident),*] $help:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Id { $($id),* }

        pub(super) const TABLE: &[Definition] = &[$(Definition {
            name: $name,
            shape: Shape::$shape,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    BuildInfo: Gauge State "remuda_build_info" [Version]
        "Always 1; the label tells the version.";
    StartTime: Gauge Seconds "remuda_start_time_seconds" []
        "When the pool started, in seconds since 1970.";

    Workers: Gauge Count "remuda_workers" [Kind, WorkerIs]
        "Workers by state.";
    WorkersLimit: Gauge Count "remuda_workers_limit" [Kind, Limit]
        "How many workers the kind has at least and at most, as configured; 0 for a kind that was removed.";
    PoolWorkersLimit: Gauge Count "remuda_pool_workers_limit" []
        "How many workers there are at most, over all kinds (pool.max_workers).";
    WorkerTransitions: Counter Count "remuda_worker_transitions_total" [Kind, Move]
        "Workers that went from one state to another.";
    WorkerExits: Counter Count "remuda_worker_exits_total" [Kind, Cause]
        "Workers that ended, by cause.";
    WorkerRestarts: Counter Count "remuda_worker_restarts_total" [Kind]
        "Workers started to take the place of one that ended in failure.";
    WorkerStart: Histogram Seconds "remuda_worker_start_seconds" [Kind]
        "Time from a worker's start until it was ready.";
    WorkerSilence: Gauge Seconds "remuda_worker_silence_seconds" [Kind]
        "The longest time since a live worker of the kind last said anything: the age of its heartbeat. 0 without workers.";
    WorkerMemory: Gauge Bytes "remuda_worker_memory_bytes" [Kind]
        "Resident memory of the kind's workers together, as last measured.";
    MemoryReserved: Gauge Bytes "remuda_memory_reserved_bytes" [Kind]
        "Memory set aside for the kind's workers.";
    MemoryBudget: Gauge Bytes "remuda_memory_budget_bytes" []
        "Memory that may be set aside for all workers together (pool.memory_budget); 0 if there is no bound.";
    Evictions: Counter Count "remuda_evictions_total" [Kind, Strategy]
        "Workers that were stopped to make room.";
    Scalings: Counter Count "remuda_scalings_total" [Kind, Direction]
        "Decisions to change how many workers the kind has.";
    CircuitState: Gauge State "remuda_circuit_state" [Kind]
        "Whether workers of the kind start: 0 closed (they do), 1 half open (one just did again), 2 open (queries fail at once).";
    Serving: Gauge State "remuda_serving" [Kind]
        "1 if a query of the kind could start, else 0.";

    Queries: Gauge Count "remuda_queries" [Kind, QueryIs]
        "Queries that are kept, by state; ended ones are kept for a while.";
    QueueDepth: Gauge Count "remuda_queue_depth" [Kind]
        "Queries that wait for a worker.";
    QueueLimit: Gauge Count "remuda_queue_limit" []
        "How many queries may wait, over all kinds (queue.max_queries).";
    QueueOldest: Gauge Seconds "remuda_queue_oldest_seconds" [Kind]
        "How long ago the oldest waiting query was submitted; 0 if none waits.";
    QueueWait: Histogram Seconds "remuda_queue_wait_seconds" [Kind]
        "Time from a query's submit until a worker got it.";
    QueryFirstMessage: Histogram Seconds "remuda_query_first_message_seconds" [Kind]
        "Time from when a worker got a query until its first message, for attempts that had one.";
    QueryDuration: Histogram Seconds "remuda_query_duration_seconds" [Kind]
        "Time from a query's submit until its final event.";
    QueryResults: Counter Count "remuda_query_results_total" [Kind, Type, Outcome]
        "Queries that ended, by outcome.";
    QueryFailures: Counter Count "remuda_query_failures_total" [Kind, Failure]
        "Queries that ended in an error or were rejected, by reason.";
    QueryRetries: Counter Count "remuda_query_retries_total" [Kind, Retried]
        "Failed attempts that were followed by another.";
    DeadLetters: Gauge Count "remuda_dead_letters" [Kind]
        "Dead letters that are kept.";
    DeadLettersTotal: Counter Count "remuda_dead_letters_total" [Kind]
        "Queries that became dead letters.";
    SubmitRefused: Counter Count "remuda_submit_refused_total" [Refused]
        "Queries that were not accepted.";
    StaleFrames: Counter Count "remuda_stale_frames_total" [Kind]
        "Frames of workers that were dropped because their query was over.";
    ReaderStalls: Counter Count "remuda_reader_stalls_total" [Kind]
        "Times that a worker had to wait for slow readers of its results.";
    EventsDropped: Counter Count "remuda_events_dropped_total" [Kind]
        "Events dropped from full logs; their readers saw a gap if they had not read them.";
    Cancel: Histogram Seconds "remuda_cancel_seconds" [Kind, Stage]
        "Time from an accepted cancel until the query's end, by what it took.";

    GrpcRequests: Counter Count "remuda_grpc_requests_total" [Method, Code]
        "gRPC calls that ended, by status code.";
    GrpcSeconds: Histogram Seconds "remuda_grpc_seconds" [Method]
        "Duration of gRPC calls; of streams, until their end.";
    GrpcConnections: Gauge Count "remuda_grpc_connections" []
        "Open gRPC connections.";
    GrpcConnectionsLimit: Gauge Count "remuda_grpc_connections_limit" []
        "How many gRPC connections may be open (server.max_connections).";

    ProcessCpu: FineCounter Seconds "process_cpu_seconds_total" []
        "Processor time that the server itself has used.";
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
        "When the server's process started, in seconds since 1970.";
}
