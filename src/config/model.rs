//! The checked configuration as plain data.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::confinement::{Confinement, WorkDir};

/// The server's variables that every worker gets. Nothing else of the server's environment reaches
/// a worker unless `pass_env` names it, because the server's environment tends to hold secrets.
pub const BASE_ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Everything that can be configured. What each value means and why its default is what it is
/// stands in `keys/`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub server: ServerConfig,
    pub pool: PoolConfig,
    pub queue: QueueConfig,
    pub recovery: RecoveryConfig,
    pub retry: RetryConfig,
    pub dead_letters: DeadLettersConfig,
    pub results: ResultsConfig,
    /// At least one, in the order of the file.
    pub kinds: Vec<KindConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    pub listen: Listen,
    /// `None` when switched off.
    pub http: Option<SocketAddr>,
    /// `None` when switched off.
    pub tls: Option<TlsFiles>,
    pub tokens: Option<PathBuf>,
    pub workers_may_read_secrets: bool,
    pub allow_insecure: bool,
    pub http_tls: bool,
    pub http_open_paths: Vec<String>,
    /// `None` when switched off.
    pub otlp_endpoint: Option<String>,
    /// From 0 to 1.
    pub otlp_sample: f64,
    pub max_message_bytes: u64,
    pub max_metadata_bytes: u64,
    pub max_connections: NonZeroUsize,
    pub max_http_connections: NonZeroUsize,
    /// For each connection.
    pub max_concurrent_streams: NonZeroU32,
    pub request_timeout: Duration,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    /// `None` for no bound.
    pub max_connection_age: Option<Duration>,
    /// `None` for no bound.
    pub max_connection_age_grace: Option<Duration>,
    /// Compressions of answers, for clients that accept them.
    pub compression: Vec<Compression>,
}

/// Where the certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those between it and its root, in PEM.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Clients must have a certificate of one of these authorities.
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    pub max_workers: NonZeroUsize,
    /// In bytes; `None` for no bound. With one, every kind has its `memory`.
    pub memory_budget: Option<u64>,
    pub eviction: Eviction,
    /// Over all kinds.
    pub max_starting: NonZeroUsize,
    pub drain_pause: Duration,
    pub drain_timeout: Duration,
    /// Absolute; `None` for the system's temporary directory.
    pub socket_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueueConfig {
    pub max_queries: NonZeroUsize,
    pub max_bytes: u64,
    /// `None` when switched off.
    pub aging: Option<Duration>,
    /// `None` for no bound.
    pub max_queries_per_owner: Option<NonZeroUsize>,
    /// `None` for no bound.
    pub max_running_per_owner: Option<NonZeroUsize>,
}

/// What happens to a query whose worker died under it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryConfig {
    pub default: Recovery,
    /// By query type; these count more than the default.
    pub types: BTreeMap<String, Recovery>,
}

impl RecoveryConfig {
    /// What holds for queries of this type, or of none.
    #[must_use]
    pub fn for_type(&self, query_type: Option<&str>) -> Recovery {
        let own = query_type.and_then(|name| self.types.get(name));
        own.copied().unwrap_or(self.default)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The query ends in an error.
    Reject,
    /// The query runs again on another worker, at most this many times more; at least once.
    Retry { attempts: u32 },
}

/// What happens to a query whose worker reports a retryable error.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryConfig {
    /// How many times it runs again at most; 0 when switched off.
    pub attempts: u32,
    /// At most `backoff_max`.
    pub backoff: Duration,
    pub backoff_max: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeadLettersConfig {
    /// 0 when none are kept.
    pub max: usize,
    pub max_bytes: u64,
    pub max_age: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResultsConfig {
    pub max_events: NonZeroUsize,
    pub max_bytes: u64,
    pub retention: Duration,
    pub max_ended: NonZeroUsize,
    pub max_total_bytes: u64,
    pub overflow: Overflow,
    pub max_stall: Duration,
}

/// One kind of worker.
#[derive(Debug, Clone, PartialEq)]
pub struct KindConfig {
    /// 1 to 63 of `a-z`, `0-9`, `_` and `-`, starting with a letter; unique.
    pub name: Arc<str>,
    /// The program and its arguments; never empty, and no string in it is.
    pub command: Vec<String>,
    /// No other kind serves any of these.
    pub types: Vec<String>,
    /// No duplicates.
    pub capabilities: Vec<String>,
    /// At most `max`; over all kinds the sum is at most the pool's `max_workers`.
    pub min: usize,
    pub max: NonZeroUsize,
    /// Whether a worker is bound to one key for its life.
    pub keyed: bool,
    /// Always strict if `keyed`.
    pub affinity: Affinity,
    pub balance: Balance,
    /// In bytes; `None` only if the pool has no `memory_budget`.
    pub memory: Option<u64>,
    /// In bytes; less than `memory_limit`.
    pub memory_soft: Option<u64>,
    /// In bytes.
    pub memory_limit: Option<u64>,
    /// `None` when switched off.
    pub idle_ttl: Option<Duration>,
    /// Not yet lowered at random, as it is for each worker.
    pub max_queries: Option<NonZeroU64>,
    /// Likewise.
    pub max_age: Option<Duration>,
    pub scale_up_after: Duration,
    /// At least 1.
    pub scale_up_depth: usize,
    pub scale_up_step: NonZeroUsize,
    pub scale_down_after: Duration,
    pub scale_down_step: NonZeroUsize,
    pub dir: WorkDir,
    pub env: BTreeMap<String, String>,
    pub pass_env: Vec<String>,
    pub user: Option<String>,
    pub group: Option<String>,
    pub confinement: Confinement,
    pub transport: Transport,
    pub start_timeout: Duration,
    /// At most `start_timeout`.
    pub connect_timeout: Duration,
    /// `None` when switched off.
    pub timeout: Option<Duration>,
    /// `None` when switched off.
    pub queue_timeout: Option<Duration>,
    pub cancel_grace: Duration,
    pub term_grace: Duration,
    pub idle_after: Duration,
    pub max_line_bytes: u64,
    /// At most `restart_backoff_max`.
    pub restart_backoff: Duration,
    pub restart_backoff_max: Duration,
    pub circuit_failures: NonZeroU32,
    /// `None` when switched off.
    pub max_failures: Option<NonZeroU32>,
    /// Less than `heartbeat_timeout`.
    pub heartbeat_warning: Duration,
    pub heartbeat_timeout: Duration,
    pub ping_interval: Duration,
}

/// Where gRPC is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What the worker protocol runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Socket,
    Stdio,
}

/// A compression of gRPC messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
}

/// What happens when a query's log is full and its readers have not caught up in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest events are dropped, and a gap event says so.
    Gap,
    /// The worker waits for as long as a reader is attached; without one, as `Gap`.
    Stall,
    /// The query ends in an error.
    Fail,
}

/// Which worker without a query makes room for one that is needed more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// The one unused for the longest time.
    Lru,
    /// The one that started first.
    Oldest,
    /// The one that has run the fewest queries.
    LeastUsed,
    /// The one that takes the most memory.
    Largest,
}

impl Eviction {
    pub const ALL: [Self; 4] = [Self::Lru, Self::Oldest, Self::LeastUsed, Self::Largest];

    /// The word for it in the configuration and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Oldest => "oldest",
            Self::LeastUsed => "least_used",
            Self::Largest => "largest",
        }
    }
}

/// What it means for a query with a key or a session that a worker served the same before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Nothing.
    Off,
    /// The query goes to that worker if it is free, else to any.
    Prefer,
    /// The query waits for that worker as long as it lives.
    Strict,
}

/// Which of several free workers gets a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn.
    RoundRobin,
    /// The one that has run the fewest queries.
    LeastLoaded,
    /// The one that was used last.
    MostRecent,
}
