//! The pool as plain data at one moment, for whoever decides about its size.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::room::Room;
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
    /// Workers kept whatever the load: `min`, or more if someone asked for more. None once the kind or the server goes.
    pub floor: usize,
    /// How long there have been fewer.
    pub short_for: Duration,
    /// Someone asked for no more than this many just now.
    pub shrink_to: Option<usize>,
    /// The kind is no longer configured; what was accepted for it is still served.
    pub removed: bool,
    /// Accepted queries that have not ended.
    pub unfinished: usize,
    pub starts: Starts,
    pub demand: DemandView,
    /// A worker that any query of the kind may have is free.
    pub ready: bool,
    /// How long ago workers were last added because of the load.
    pub since_growth: Option<Duration>,
    /// How long nothing has waited while few workers were busy, and how many were at most.
    pub quiet_for: Option<Duration>,
    pub peak_busy: usize,
    pub workers: Vec<WorkerView>,
}

/// How the last starts of a kind went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    Fine,
    /// The last one failed: one at a time tries whether the next one succeeds.
    Troubled,
    /// After failures, the next one is not due yet.
    PutOff,
}

/// What waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DemandView {
    /// Queries that a new worker could run.
    pub open: usize,
    /// How long the oldest of them has waited.
    pub oldest: Option<Duration>,
    /// Keys that wait and have no worker, first things first, and how long each has waited.
    pub lanes: Vec<(Arc<str>, Duration)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerView {
    pub id: WorkerId,
    pub state: WorkerState,
    /// Bound to a key for life.
    pub bound: bool,
    /// A query waits for just this worker.
    pub wanted: bool,
    /// Takes no queries because someone said so.
    pub drained: bool,
    pub idle_for: Duration,
    pub age: Duration,
    pub queries: u64,
    /// Measured, or what was reserved for it if it was never measured.
    pub rss: u64,
    pub reserved: u64,
    /// Why it is to be replaced.
    pub due: Option<DeathCause>,
    /// The worker that it is to replace.
    pub replaces: Option<WorkerId>,
}

impl PoolView {
    /// Whether one more worker of the kind could be started now.
    pub(crate) fn has_room_for(&self, kind: &KindView) -> bool {
        let in_kind = kind.workers.len() < kind.config.max.get();
        in_kind && Room::of(self).take(kind.memory()).is_ok()
    }
}

impl WorkerView {
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, WorkerState::Spawning | WorkerState::Loading)
    }

    pub(super) fn is_stopping(&self) -> bool {
        !self.state.is_live()
    }

    /// In service and without a query.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, WorkerState::Ready | WorkerState::Idle)
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.is_healthy()
    }
}

impl KindView {
    /// Workers that serve or are on their way to, but for those that stand beside the one they are to replace.
    pub(crate) fn live(&self) -> usize {
        let counts = |worker: &&WorkerView| !worker.is_stopping() && !worker.drained && !self.is_surge(worker);
        self.workers.iter().filter(counts).count()
    }

    /// Workers that hold resources, but for those that stand beside the one they are to replace.
    pub(super) fn present(&self) -> usize {
        self.workers.iter().filter(|worker| !self.is_surge(worker)).count()
    }

    pub(crate) fn starting(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_starting() && !self.is_surge(worker)).count()
    }

    /// Workers that are on their way out and make a place in the kind.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_stopping() && !self.is_surge(worker)).count()
    }

    /// How many of these are the kind's.
    pub(super) fn count_of(&self, workers: &[WorkerId]) -> usize {
        self.workers.iter().filter(|worker| workers.contains(&worker.id)).count()
    }

    /// Whether it stands beside the worker that it is to replace.
    pub(super) fn is_surge(&self, worker: &WorkerView) -> bool {
        worker.replaces.is_some_and(|old| self.worker(old).is_some_and(|old| !old.is_stopping()))
    }

    pub(super) fn worker(&self, id: WorkerId) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| worker.id == id)
    }

    /// Those whose successors are there.
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
