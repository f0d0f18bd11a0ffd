//! Whether a query could start now, and if not, why not.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::{
    config::KindConfig,
    model::DeathCertificate,
    state::{Occupancy, PoolLifecycle, WorkerState},
    worker::PoolWorker,
};

use super::{Inner, Pool, circuit::Trouble, kinds::Kind};

/// What is said while load balancers are given time to look elsewhere.
const LEAVING: &str = "the server is about to stop and takes queries only for a moment longer";

#[derive(Debug, Clone)]
pub struct Health {
    pub serving: bool,
    pub reasons: Vec<String>,
    /// Why no query should come here, whatever its kind.
    pub closed: Option<String>,
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
    pub last_failure: Option<Arc<DeathCertificate>>,
}

impl Pool {
    /// The health of the pool: it serves if any kind does, and tells of every kind that does not.
    #[must_use]
    pub fn health(&self) -> Health {
        let inner = &self.inner;
        let lifecycle = inner.lifecycle.get();
        let mut all = inner.workers_by_kind();
        all.retain(|(kind, _)| !kind.is_removed());
        let kinds: Vec<KindHealth> = all.iter().map(|(kind, workers)| inner.kind_health(kind, workers)).collect();
        let closed = inner.out_of_service();
        let mut reasons: Vec<String> = closed.iter().cloned().collect();
        reasons.extend(kinds.iter().filter_map(|kind| kind.reason.clone()));
        Health {
            serving: closed.is_none() && kinds.iter().any(|kind| kind.reason.is_none()),
            reasons,
            closed,
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
        self.serving = self.closed.is_none() && reason.is_none();
        self.reasons = self.closed.iter().cloned().chain(reason).collect();
        Some(self)
    }
}

/// Whether new queries are taken.
pub(super) fn is_admitting(lifecycle: PoolLifecycle) -> bool {
    matches!(lifecycle, PoolLifecycle::Initializing | PoolLifecycle::Ready)
}

impl Inner {
    /// Why no query is taken, if none is.
    pub(super) fn closed(&self) -> Option<String> {
        let lifecycle = self.lifecycle.get();
        if !is_admitting(lifecycle) {
            return Some(format!("the server is {lifecycle} and takes no more queries"));
        }
        let drained = self.drained.lock();
        drained
            .as_ref()
            .map(|reason| format!("the pool was drained by hand and takes no queries until it is resumed{reason}"))
    }

    /// Why no query should come here, if none should: none is taken, or soon none will be.
    pub(super) fn out_of_service(&self) -> Option<String> {
        let leaving = || self.leaving.load(Relaxed).then(|| LEAVING.to_owned());
        self.closed().or_else(leaving)
    }

    fn kind_health(&self, kind: &Kind, workers: &[Arc<PoolWorker>]) -> KindHealth {
        let states: Vec<WorkerState> = workers.iter().map(|worker| worker.state()).collect();
        let count = |state: &WorkerState| (*state, states.iter().filter(|found| *found == state).count());
        KindHealth {
            reason: self.kind_reason(kind, workers),
            workers: WorkerState::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
            waiting: self.broker.waiting_count(&kind.name),
            last_failure: kind.trouble.lock().last_failure.clone(),
            kind: kind.config(),
        }
    }

    /// Why a query of this kind could not start, if it could not.
    pub(super) fn kind_reason(&self, kind: &Kind, workers: &[Arc<PoolWorker>]) -> Option<String> {
        let now = Instant::now();
        if workers.iter().map(|worker| worker.stats(now)).any(|worker| worker.state.is_healthy() && !worker.drained) {
            return None;
        }
        let trouble = kind.trouble.lock();
        // A kind that keeps no worker waiting starts one for the first query.
        let may_grow = workers.iter().filter(|worker| worker.state().is_live()).count() < kind.config().max.get();
        let on_demand = kind.config().min == 0 && may_grow && trouble.failed_starts == 0 && self.could_start_one(kind);
        (!on_demand).then(|| explain(&kind.name, workers, &trouble, self.tightest(kind)))
    }

    /// What keeps the pool from having a worker of this kind, if anything does.
    fn tightest(&self, kind: &Kind) -> Option<&'static str> {
        if self.could_start_one(kind) {
            return None;
        }
        let full = self.data.count() >= self.config().pool.max_workers.get();
        Some(if full { "pool.max_workers" } else { "pool.memory_budget" })
    }

    /// Whether there is room for a worker of this kind, or an idle worker of another that would make room.
    fn could_start_one(&self, kind: &Kind) -> bool {
        let config = self.config();
        let memory = kind.config().memory.unwrap_or(0);
        let fits = config.pool.memory_budget.is_none_or(|budget| self.memory.reserved() + memory <= budget);
        if fits && self.data.count() < config.pool.max_workers.get() {
            return true;
        }
        let spare = |other: &Arc<Kind>| other.slot != kind.slot && self.live(other) > other.config().min;
        let may_go: Vec<usize> = self.kinds.all().iter().filter(|other| spare(other)).map(|other| other.slot).collect();
        self.data.snapshot().iter().any(|worker| may_go.contains(&worker.slot) && !worker.is_busy())
    }
}

fn explain(kind: &str, workers: &[Arc<PoolWorker>], trouble: &Trouble, limit: Option<&str>) -> String {
    let starting = |worker: &&Arc<PoolWorker>| matches!(worker.state(), WorkerState::Spawning | WorkerState::Loading);
    let starting = workers.iter().filter(starting).count();
    let drained = workers.iter().filter(|worker| worker.snapshot().drained).count();
    match (trouble.failed_starts, &trouble.last_failure) {
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
