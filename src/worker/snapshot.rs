//! Plain data about a worker, as the pool and the API read it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    model::{DeathCause, QueryId, WorkerId},
    state::WorkerState,
};

use super::usage::UsageSample;

/// Contents of a worker's `ready` frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyInfo {
    pub name: Option<String>,
    pub version: Option<String>,
    pub capabilities: Vec<String>,
    /// True if it sends heartbeats.
    pub heartbeats: bool,
}

/// Everything about a worker at one moment.
#[derive(Debug, Clone)]
pub struct WorkerSnapshot {
    pub id: WorkerId,
    pub kind: Arc<str>,
    pub stats: WorkerStats,
    pub pid: Option<u32>,
    pub query: Option<QueryId>,
    pub started_at: SystemTime,
    pub peak_rss: Option<u64>,
    pub usage: Option<UsageSample>,
    pub ready_info: ReadyInfo,
    /// The key it is bound to.
    pub key: Option<Arc<str>>,
}

/// The figures that the pool's planning and its gauges read often; made without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerStats {
    pub state: WorkerState,
    /// An operator keeps queries from it.
    pub drained: bool,
    /// Time since it last sent anything.
    pub silence: Duration,
    /// Time since it was started.
    pub age: Duration,
    /// Time since it was last given or last finished a query.
    pub idle_for: Duration,
    pub queries_processed: u64,
    /// As last measured.
    pub rss: Option<u64>,
    /// Share of the memory budget that is reserved for it.
    pub reserved: u64,
    /// The reason to replace it, if there is one.
    pub due: Option<DeathCause>,
}
