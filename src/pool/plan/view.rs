//! The pool as plain data at one moment: the input of the plan.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::capacity::FreeCapacity;
use crate::{
    config::{Eviction, KindConfig},
    model::{DeathCause, WorkerId},
    state::WorkerState,
};

#[derive(Debug, Clone)]
pub(crate) struct PoolView {
    pub max_workers: usize,
    pub max_starting: usize,
    pub memory_budget: Option<u64>,
    pub eviction: Eviction,
    pub kinds: Vec<KindView>,
}

#[derive(Debug, Clone)]
pub(crate) struct KindView {
    pub kind: usize,
    pub config: Arc<KindConfig>,
    /// Workers kept whatever the load: `min`, or more if an operator asked for more. 0 once the kind or the server stops.
    pub floor: usize,
    /// Time for which there have been fewer than `floor`.
    pub short_for: Duration,
    /// Number of workers that an operator asked to shrink to.
    pub shrink_to: Option<usize>,
    /// The kind is no longer configured; its accepted queries are still served.
    pub removed: bool,
    /// Accepted queries that have not ended.
    pub unfinished: usize,
    pub starts: StartHealth,
    pub demand: DemandView,
    /// A worker is free that may take any query of the kind.
    pub ready: bool,
    /// Time since workers were last added.
    pub since_growth: Option<Duration>,
    /// Time for which nothing has waited and few workers were busy, and the most that were busy in it.
    pub quiet_for: Option<Duration>,
    pub peak_busy: usize,
    pub workers: Vec<WorkerView>,
}

/// Success of the last starts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartHealth {
    Good,
    /// The last start failed: workers are started one at a time.
    Failing,
    /// The last start failed, and the next one is not due yet.
    Delayed,
}

/// The waiting queries of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DemandView {
    /// Queries that a new worker could run.
    pub open: usize,
    /// Waiting time of the oldest of them.
    pub oldest: Option<Duration>,
    /// Keys that wait and have no worker, in the order of their queries, with their waiting times.
    pub lanes: Vec<(Arc<str>, Duration)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerView {
    pub id: WorkerId,
    pub state: WorkerState,
    /// Bound to a key for life.
    pub bound: bool,
    /// A query waits for this worker and no other.
    pub wanted: bool,
    /// Drained by an operator: takes no queries.
    pub drained: bool,
    pub idle_for: Duration,
    pub age: Duration,
    pub queries: u64,
    /// Measured memory, or the reserved amount before the first measurement.
    pub rss: u64,
    pub reserved: u64,
    /// Cause for which it is to be replaced.
    pub due: Option<DeathCause>,
    /// The worker that it is to replace.
    pub replaces: Option<WorkerId>,
}

impl PoolView {
    /// True if one more worker of the kind could be started now.
    pub(crate) fn has_capacity_for(&self, kind: &KindView) -> bool {
        let in_kind = kind.workers.len() < kind.config.max.get();
        in_kind && FreeCapacity::of(self).take(kind.memory()).is_ok()
    }
}

impl WorkerView {
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, WorkerState::Spawning | WorkerState::Loading)
    }

    pub(super) fn is_stopping(&self) -> bool {
        !self.state.is_live()
    }

    /// True if it is in service and has no query.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, WorkerState::Ready | WorkerState::Idle)
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.is_healthy()
    }
}

impl KindView {
    /// Workers that are starting or in service, without those that run beside the one they replace.
    pub(crate) fn live(&self) -> usize {
        let counts = |worker: &&WorkerView| !worker.is_stopping() && !worker.drained && !self.is_surge(worker);
        self.workers.iter().filter(counts).count()
    }

    /// Workers that hold resources, without those that run beside the one they replace.
    pub(super) fn present(&self) -> usize {
        self.workers.iter().filter(|worker| !self.is_surge(worker)).count()
    }

    pub(crate) fn starting(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_starting() && !self.is_surge(worker)).count()
    }

    /// Stopping workers, each of which makes room in the kind.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_stopping() && !self.is_surge(worker)).count()
    }

    /// Number of these workers that are of the kind.
    pub(super) fn count_of(&self, workers: &[WorkerId]) -> usize {
        self.workers.iter().filter(|worker| workers.contains(&worker.id)).count()
    }

    /// True if the worker runs beside the one that it replaces.
    pub(super) fn is_surge(&self, worker: &WorkerView) -> bool {
        worker.replaces.is_some_and(|old| self.worker(old).is_some_and(|old| !old.is_stopping()))
    }

    pub(super) fn worker(&self, id: WorkerId) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| worker.id == id)
    }

    /// Workers whose successors have been started.
    pub(super) fn succeeded(&self) -> HashSet<WorkerId> {
        self.workers.iter().filter(|worker| !worker.is_stopping()).filter_map(|worker| worker.replaces).collect()
    }

    pub(super) fn successor_of(&self, id: WorkerId) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| worker.replaces == Some(id) && !worker.is_stopping())
    }

    pub(super) fn memory(&self) -> u64 {
        self.config.memory.unwrap_or(0)
    }
}
