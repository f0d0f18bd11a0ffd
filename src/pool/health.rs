//! Health: reports whether a query could start now, and if not, the reason.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    config::KindConfig,
    model::DeathCertificate,
    state::{Occupancy, PoolLifecycle, WorkerState},
    worker::PoolWorker,
};

use super::{Pool, circuit::StartFailures, context::PoolContext, kinds::PoolKind};

#[derive(Debug, Clone)]
pub struct PoolHealth {
    pub serving: bool,
    pub reasons: Vec<String>,
    /// Reason why no query of any kind should be sent here.
    pub closed: Option<String>,
    pub lifecycle: PoolLifecycle,
    pub occupancy: Occupancy,
    pub kinds: Vec<KindHealth>,
    pub uptime: Duration,
}

#[derive(Debug, Clone)]
pub struct KindHealth {
    pub kind: Arc<KindConfig>,
    /// Reason why a query of this kind could not start; `None` if it could.
    pub reason: Option<String>,
    /// States with at least one worker.
    pub workers: Vec<(WorkerState, usize)>,
    pub waiting: usize,
    pub last_failure: Option<Arc<DeathCertificate>>,
}

impl PoolHealth {
    /// The health of one kind alone; `None` if there is no such kind.
    #[must_use]
    pub fn of_kind(mut self, name: &str) -> Option<Self> {
        self.kinds.retain(|kind| *kind.kind.name == *name);
        let reason = self.kinds.first()?.reason.clone();
        self.serving = self.closed.is_none() && reason.is_none();
        self.reasons = self.closed.iter().cloned().chain(reason).collect();
        Some(self)
    }
}

impl Pool {
    /// The health of the pool: it serves if any kind does, and gives a reason for every kind that does not.
    #[must_use]
    pub fn health(&self) -> PoolHealth {
        let PoolContext { registry, .. } = &*self.parts.context;
        let mut all = self.parts.context.workers_by_kind();
        all.retain(|(kind, _)| !kind.is_removed());
        let kinds: Vec<KindHealth> = all.iter().map(|(kind, workers)| self.kind_health(kind, workers)).collect();
        let closed = self.parts.admission.out_of_service_reason();
        let reasons = closed.iter().chain(kinds.iter().filter_map(|kind| kind.reason.as_ref()));
        PoolHealth {
            serving: closed.is_none() && kinds.iter().any(|kind| kind.reason.is_none()),
            reasons: reasons.cloned().collect(),
            closed,
            lifecycle: self.parts.admission.lifecycle(),
            occupancy: Occupancy::of(registry.count(), self.parts.context.config().pool.max_workers.get()),
            kinds,
            uptime: self.parts.started.elapsed(),
        }
    }

    fn kind_health(&self, kind: &PoolKind, workers: &[Arc<PoolWorker>]) -> KindHealth {
        let states: Vec<WorkerState> = workers.iter().map(|worker| worker.state()).collect();
        let count = |state: &WorkerState| (*state, states.iter().filter(|found| *found == state).count());
        KindHealth {
            reason: self.unavailable_reason(kind, workers),
            workers: WorkerState::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
            waiting: self.parts.context.broker.waiting_count(&kind.name),
            last_failure: kind.start_failures.lock().last_failure.clone(),
            kind: kind.config(),
        }
    }

    /// Reason why a query of this kind could not start, if it could not.
    pub(super) fn unavailable_reason(&self, kind: &PoolKind, workers: &[Arc<PoolWorker>]) -> Option<String> {
        let now = Instant::now();
        if workers.iter().map(|worker| worker.stats(now)).any(|worker| worker.state.is_healthy() && !worker.drained) {
            return None;
        }
        let limit = self.blocking_limit(kind);
        let failures = kind.start_failures.lock();
        let config = kind.config();
        // A kind with `min = 0` starts a worker for the first query.
        let may_grow = workers.iter().filter(|worker| worker.state().is_live()).count() < config.max.get();
        let on_demand = config.min == 0 && may_grow && failures.count == 0 && limit.is_none();
        (!on_demand).then(|| explain(&kind.name, workers, &failures, limit))
    }

    /// The config key that keeps the pool from starting a worker of this kind. None does if there is room, or if an idle
    /// worker of another kind would make room.
    fn blocking_limit(&self, kind: &PoolKind) -> Option<&'static str> {
        let PoolContext { registry, kinds, .. } = &*self.parts.context;
        let pool = &self.parts.context.config().pool;
        let memory = self.parts.memory.reserved() + kind.config().memory.unwrap_or(0);
        let limit = if registry.count() >= pool.max_workers.get() {
            "pool.max_workers"
        } else if pool.memory_budget.is_some_and(|budget| memory > budget) {
            "pool.memory_budget"
        } else {
            return None;
        };
        let has_spare = |other: &Arc<PoolKind>| {
            let workers = registry.all_of_kind(other.slot);
            let live = workers.iter().filter(|worker| worker.state().is_live()).count();
            other.slot != kind.slot && live > other.config().min && workers.iter().any(|worker| !worker.is_busy())
        };
        (!kinds.all().iter().any(has_spare)).then_some(limit)
    }
}

fn explain(kind: &str, workers: &[Arc<PoolWorker>], failures: &StartFailures, limit: Option<&str>) -> String {
    let is_starting =
        |worker: &&Arc<PoolWorker>| matches!(worker.state(), WorkerState::Spawning | WorkerState::Loading);
    let starting = workers.iter().filter(is_starting).count();
    let drained = workers.iter().filter(|worker| worker.is_drained()).count();
    match (failures.count, &failures.last_failure) {
        (1, Some(last)) => format!("kind {kind} has no worker: the last start failed; {}", last.summary()),
        (failed @ 2.., Some(last)) => {
            format!("kind {kind} has no worker: the last {failed} starts failed; {}", last.summary())
        }
        _ if drained > 0 => format!("kind {kind} has no worker that takes queries: {drained} drained by hand"),
        _ if starting > 0 => format!("kind {kind} has no worker yet: {starting} starting"),
        _ => match limit {
            Some(limit) => format!("kind {kind} has no worker, and the pool has no room for one ({limit})"),
            None => format!("kind {kind} has no worker yet: one is about to be started"),
        },
    }
}
