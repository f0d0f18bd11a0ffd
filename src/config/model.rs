//! The checked configuration as plain data.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The server's variables that every worker gets. Nothing else of the server's environment reaches
/// a worker unless `pass_env` names it, because the server's environment tends to hold secrets.
pub const BASE_ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Everything that can be configured. What each value means and why its default is what it is
/// stands in `keys.rs`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub server: ServerConfig,
    pub pool: PoolConfig,
    pub queue: QueueConfig,
    pub results: ResultsConfig,
    /// At least one, in the order of the file.
    pub kinds: Vec<KindConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    pub listen: Listen,
    /// `None` when switched off.
    pub http: Option<SocketAddr>,
    pub max_message_bytes: u64,
    pub max_metadata_bytes: u64,
    pub max_connections: NonZeroUsize,
    /// For each connection.
    pub max_concurrent_streams: NonZeroU32,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    pub max_workers: NonZeroUsize,
    pub drain_timeout: Duration,
    /// Absolute; `None` for the system's temporary directory.
    pub socket_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueueConfig {
    pub max_queries: NonZeroUsize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResultsConfig {
    pub max_events: NonZeroUsize,
    pub max_bytes: u64,
    pub retention: Duration,
    pub max_ended: NonZeroUsize,
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
    /// At most `max`; over all kinds the sum is at most the pool's `max_workers`.
    pub min: usize,
    pub max: NonZeroUsize,
    /// Absolute; `None` for the server's own working directory.
    pub dir: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub pass_env: Vec<String>,
    pub user: Option<String>,
    pub transport: Transport,
    pub start_timeout: Duration,
    /// At most `start_timeout`.
    pub connect_timeout: Duration,
    /// `None` when switched off.
    pub timeout: Option<Duration>,
    pub cancel_grace: Duration,
    pub term_grace: Duration,
    pub idle_after: Duration,
    pub max_line_bytes: u64,
    /// At most `restart_backoff_max`.
    pub restart_backoff: Duration,
    pub restart_backoff_max: Duration,
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
