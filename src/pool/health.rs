//! Whether a query could start now, and if not, why not.

use std::{sync::Arc, time::Duration};

use crate::{
    config::KindConfig,
    model::Certificate,
    state::{Occupancy, PoolLifecycle, State, WorkerState},
};

use super::{Inner, Pool, kinds::Trouble};

#[derive(Debug, Clone)]
pub struct Health {
    pub serving: bool,
    pub reasons: Vec<String>,
    pub lifecycle: PoolLifecycle,
    pub occupancy: Occupancy,
    pub kinds: Vec<KindHealth>,
    pub uptime: Duration,
}

#[derive(Debug, Clone)]
pub struct KindHealth {
    pub kind: Arc<KindConfig>,
    /// Why a query of this kind could not start; `None` if it could.
    pub reason: Option<String>,
    /// States with at least one worker.
    pub workers: Vec<(WorkerState, usize)>,
    pub waiting: usize,
    pub last_failure: Option<Arc<Certificate>>,
}

impl Pool {
    /// The health of the pool: it serves if any kind does, and tells of every kind that does not.
    #[must_use]
    pub fn health(&self) -> Health {
        let inner = &self.inner;
        let lifecycle = inner.lifecycle.get();
        let kinds: Vec<KindHealth> = (0..inner.kinds.len()).map(|kind| inner.kind_health(kind)).collect();
        let mut reasons = Vec::new();
        if !is_admitting(lifecycle) {
            reasons.push(format!("the server is {lifecycle} and takes no more queries"));
        }
        reasons.extend(kinds.iter().filter_map(|kind| kind.reason.clone()));
        Health {
            serving: is_admitting(lifecycle) && kinds.iter().any(|kind| kind.reason.is_none()),
            reasons,
            lifecycle,
            occupancy: inner.occupancy(),
            kinds,
            uptime: inner.started.elapsed(),
        }
    }
}

impl Health {
    /// The health of one kind alone; `None` if there is no such kind.
    #[must_use]
    pub fn of_kind(mut self, name: &str) -> Option<Self> {
        self.kinds.retain(|kind| *kind.kind.name == *name);
        let reason = self.kinds.first()?.reason.clone();
        if is_admitting(self.lifecycle) {
            self.reasons.clear();
        } else {
            self.reasons.truncate(1);
        }
        self.serving = is_admitting(self.lifecycle) && reason.is_none();
        self.reasons.extend(reason);
        Some(self)
    }
}

/// Whether new queries are taken.
pub(super) fn is_admitting(lifecycle: PoolLifecycle) -> bool {
    matches!(lifecycle, PoolLifecycle::Initializing | PoolLifecycle::Ready)
}

impl Inner {
    fn kind_health(&self, kind: usize) -> KindHealth {
        let kind = &self.kinds[kind];
        let states: Vec<WorkerState> =
            self.data.all_of_kind(&kind.config.name).iter().map(|worker| worker.state()).collect();
        let count = |state: &WorkerState| (*state, states.iter().filter(|found| *found == state).count());
        let trouble = kind.trouble.lock();
        let healthy = states.iter().any(|state| state.is_healthy());
        // A kind that keeps no worker waiting starts one for the first query.
        let room = self.data.count() < self.config.pool.max_workers.get();
        let on_demand = kind.config.min == 0 && trouble.failed_starts == 0 && room;
        let reason = (!healthy && !on_demand).then(|| explain(&kind.config.name, &states, &trouble));
        KindHealth {
            kind: kind.config.clone(),
            reason,
            workers: WorkerState::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
            waiting: self.broker.waiting(&kind.config.name),
            last_failure: trouble.last_failure.clone(),
        }
    }
}

fn explain(kind: &str, states: &[WorkerState], trouble: &Trouble) -> String {
    let starting = states.iter().filter(|state| matches!(state, WorkerState::Spawning | WorkerState::Loading)).count();
    match (trouble.failed_starts, &trouble.last_failure) {
        (1, Some(last)) => format!("kind {kind} has no worker: the last start failed; {}", last.summary()),
        (failed @ 2.., Some(last)) => {
            format!("kind {kind} has no worker: the last {failed} starts failed; {}", last.summary())
        }
        _ if starting > 0 => format!("kind {kind} has no worker yet: {starting} starting"),
        _ => format!("kind {kind} has no worker, and the pool has no room for one (pool.max_workers)"),
    }
}
