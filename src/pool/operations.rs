//! Operations: what operators do to the pool. They scale, restart, evict, drain and resume.

use std::sync::Arc;

use bytesize::ByteSize;
use thiserror::Error;
use tracing::info;

use crate::{
    config::KindConfig,
    model::{DeathCause, QueryId, WorkerId},
    state::WorkerState,
    worker::PoolWorker,
};

use super::{
    admission::Admission, context::PoolContext, dispatcher::Dispatcher, kinds::KindSettings, reload::Reloader,
};

#[derive(Debug)]
pub struct Operations {
    pub(super) context: Arc<PoolContext>,
    pub(super) admission: Arc<Admission>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) environment: fn(&KindConfig) -> Vec<(String, String)>,
    /// `None` if the server was started without a config file.
    pub(super) reloader: Option<Reloader>,
    /// Held during a reload: there is one at a time.
    pub(super) reloading: tokio::sync::Mutex<()>,
}

/// The number of workers that an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleTarget {
    Workers(usize),
    /// A difference to the current number.
    By(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleOutcome {
    pub kind: Arc<str>,
    pub from: usize,
    pub to: usize,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum AdminError {
    #[error("there is no kind {kind:?}; this pool has: {known}")]
    NoSuchKind { kind: String, known: String },
    #[error("worker {0} is not known, or has ended; list the live ones with: remuda workers")]
    NoSuchWorker(WorkerId),
    #[error("{field}: {asked} is out of range; {limit}")]
    OutOfRange { field: &'static str, asked: String, limit: String },
    #[error("worker {worker} runs query {query}; drain it, or cancel the query, first")]
    Busy { worker: WorkerId, query: QueryId },
    #[error(
        "kind {kind} has no more workers than the {min} it keeps; scale it down first, or restart the worker instead"
    )]
    AtMinimum { kind: Arc<str>, min: usize },
    #[error("worker {worker} is {state} and not in service; wait until it is")]
    NotInService { worker: WorkerId, state: WorkerState },
    #[error("worker {0} is being stopped already")]
    Stopping(WorkerId),
    #[error("the server is stopping")]
    ShuttingDown,
    #[error("the server was started without a config file, so there is nothing to reload")]
    NoConfigFile,
    #[error("nothing was changed: {0}")]
    BadConfig(String),
}

impl Operations {
    /// Sets the least number of workers of a kind, within its limits, and stops those that are too many. The autoscaler
    /// goes on from there.
    pub fn scale(&self, kind: &str, to: ScaleTarget) -> Result<ScaleOutcome, AdminError> {
        self.admission.ensure_running()?;
        let PoolContext { kinds, registry, .. } = &*self.context;
        let no_such = || AdminError::NoSuchKind { kind: kind.to_owned(), known: kinds.describe() };
        let kind = kinds.find(kind).filter(|kind| !kind.is_removed()).ok_or_else(no_such)?;
        let config = kind.config();
        let live = registry.live_count(kind.slot);
        let mut scaling = kind.scaling.lock();
        // An earlier request may not be met yet: a difference counts from what it asked for.
        let from = scaling.target(live, config.min);
        let to = match to {
            ScaleTarget::Workers(workers) => workers,
            ScaleTarget::By(step) => {
                let wanted = i64::try_from(from).unwrap_or(i64::MAX).saturating_add(step);
                usize::try_from(wanted).unwrap_or(0).clamp(config.min, config.max.get())
            }
        };
        self.check_size(&config, to)?;
        scaling.requested_floor = Some(to);
        scaling.shrink_to = (to < live).then_some(to);
        drop(scaling);
        info!(kind = %kind.name, from, to, "asked to scale");
        self.context.wake_supervisor();
        Ok(ScaleOutcome { kind: kind.name.clone(), from, to })
    }

    /// Replaces a worker; the new one is ready before the old one stops.
    pub fn restart_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.live_worker(id)?;
        info!(worker = id.0, kind = %worker.kind.name, "asked to restart a worker");
        worker.schedule_replacement(DeathCause::Restarted);
        self.context.wake_supervisor();
        Ok(())
    }

    /// Stops a worker that runs no query.
    pub fn evict_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.live_worker(id)?;
        let kind = self.context.kinds.get(worker.slot);
        let min = kind.scaling.lock().floor(kind.config().min);
        if self.context.registry.live_count(kind.slot) <= min && !kind.is_removed() {
            return Err(AdminError::AtMinimum { kind: kind.name.clone(), min });
        }
        if worker.stop_if_free(DeathCause::Evicted) {
            self.context.record_eviction(&kind, &worker, "someone asked for it".to_owned());
            return Ok(());
        }
        match worker.snapshot().query {
            Some(query) => Err(AdminError::Busy { worker: id, query }),
            None => Err(AdminError::NotInService { worker: id, state: worker.state() }),
        }
    }

    /// Gives a worker no more queries; it lives on.
    pub fn drain_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.live_worker(id)?;
        if !worker.set_drained(true) {
            return Err(AdminError::Stopping(id));
        }
        info!(worker = id.0, kind = %worker.kind.name, "worker drained");
        self.context.kinds.get(worker.slot).ready.remove(id);
        if worker.key().is_none() {
            // Its sessions go to other workers. The queries of a key wait, because a key has only one worker.
            self.context.broker.release_lanes(&worker.kind.name, id, None);
        }
        self.context.wake_supervisor();
        Ok(())
    }

    /// Gives a drained worker queries again.
    pub fn resume_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.live_worker(id)?;
        if !worker.set_drained(false) {
            return Err(AdminError::Stopping(id));
        }
        info!(worker = id.0, kind = %worker.kind.name, "worker resumed");
        let kind = self.context.kinds.get(worker.slot);
        kind.ready.enqueue(&worker, kind.config().balance);
        self.context.wake_supervisor();
        Ok(())
    }

    /// Takes no new queries until `resume`; accepted ones run.
    pub fn drain(&self, reason: &str) -> Result<(), AdminError> {
        self.admission.ensure_running()?;
        self.admission.drain(reason);
        Ok(())
    }

    /// Takes queries again after a drain.
    pub fn resume(&self) -> Result<(), AdminError> {
        self.admission.ensure_running()?;
        self.admission.resume();
        Ok(())
    }

    fn live_worker(&self, id: WorkerId) -> Result<Arc<PoolWorker>, AdminError> {
        self.admission.ensure_running()?;
        let worker = self.context.registry.get(id).ok_or(AdminError::NoSuchWorker(id))?;
        if worker.state().is_live() { Ok(worker) } else { Err(AdminError::Stopping(id)) }
    }

    /// Fails if the kind may not have this many workers.
    fn check_size(&self, kind: &KindConfig, workers: usize) -> Result<(), AdminError> {
        let pool = &self.context.config().pool;
        let memory = kind.memory.unwrap_or(0).saturating_mul(u64::try_from(workers).unwrap_or(u64::MAX));
        let over_budget = pool.memory_budget.filter(|budget| memory > *budget);
        let (min, max) = (kind.min, kind.max.get());
        let limit = if workers < min || workers > max {
            format!(
                "kind {} may have {min} to {max} workers (min, max); change these in the configuration to go beyond",
                kind.name
            )
        } else if workers > pool.max_workers.get() {
            format!("the pool has {} at most (pool.max_workers)", pool.max_workers)
        } else if let Some(budget) = over_budget {
            let size = |bytes| ByteSize::b(bytes).display().iec();
            format!("they would need {}, more than pool.memory_budget, which is {}", size(memory), size(budget))
        } else {
            return Ok(());
        };
        Err(AdminError::OutOfRange { field: "workers", asked: workers.to_string(), limit })
    }

    pub(super) fn add_kind(&self, config: &KindConfig) {
        let PoolContext { kinds, metrics, events, .. } = &*self.context;
        kinds.add(self.kind_settings(config), metrics.kind(&config.name), events.clone());
    }

    pub(super) fn kind_settings(&self, config: &KindConfig) -> KindSettings {
        KindSettings { environment: (self.environment)(config).into(), config: Arc::new(config.clone()) }
    }
}
