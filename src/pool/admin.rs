//! What operators do to the pool: scale, restart, evict, drain, resume, reload, watch.

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
    Inner, Pool,
    events::{EventSubscription, PoolChange, PoolEventBody},
    health::is_admitting,
};

/// How many workers a kind shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleTo {
    Workers(usize),
    /// So many more than now, or fewer.
    By(i64),
}

/// What scaling came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaled {
    pub kind: Arc<str>,
    pub from: usize,
    pub to: usize,
}

/// Why an operator's wish was not granted.
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

impl Pool {
    /// Sets how many workers a kind has at least, within its limits, and stops those that are too many. The
    /// autoscaler goes on from there.
    pub fn scale(&self, kind: &str, to: ScaleTo) -> Result<Scaled, AdminError> {
        self.inner.is_up()?;
        let found = self.inner.kinds.named(kind).filter(|kind| !kind.is_removed());
        let no_such = || AdminError::NoSuchKind { kind: kind.to_owned(), known: self.inner.known_kinds() };
        let kind = found.ok_or_else(no_such)?;
        let config = kind.config();
        let live = self.inner.live(&kind);
        let mut scaling = kind.scaling.lock();
        // What was asked for before may still be on its way, and a step is one from there.
        let from = scaling.wanted(live, config.min);
        let to = match to {
            ScaleTo::Workers(workers) => workers,
            ScaleTo::By(step) => {
                let wanted = i64::try_from(from).unwrap_or(i64::MAX).saturating_add(step);
                usize::try_from(wanted).unwrap_or(0).clamp(config.min, config.max.get())
            }
        };
        self.inner.check_size(&config, to)?;
        scaling.floor = Some(to);
        scaling.shrink_to = (to < live).then_some(to);
        drop(scaling);
        info!(kind = %kind.name, from, to, "asked to scale");
        self.inner.nudge.notify_one();
        Ok(Scaled { kind: kind.name.clone(), from, to })
    }

    /// Replaces a worker; the new one is ready before the old one goes.
    pub fn restart_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.inner.live_worker(id)?;
        info!(worker = id.0, kind = %worker.kind.name, "asked to restart a worker");
        worker.schedule_replacement(DeathCause::Restarted);
        self.inner.nudge.notify_one();
        Ok(())
    }

    /// Stops a worker that runs no query.
    pub fn evict_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.inner.live_worker(id)?;
        let kind = self.inner.kinds.get(worker.slot);
        let min = kind.scaling.lock().floor(kind.config().min);
        if self.inner.live(&kind) <= min && !kind.is_removed() {
            return Err(AdminError::AtMinimum { kind: kind.name.clone(), min });
        }
        if worker.stop_if_free(DeathCause::Evicted) {
            self.inner.evicted(&kind, &worker, "someone asked for it".to_owned());
            return Ok(());
        }
        match worker.snapshot().query {
            Some(query) => Err(AdminError::Busy { worker: id, query }),
            None => Err(AdminError::NotInService { worker: id, state: worker.state() }),
        }
    }

    /// Gives a worker no more queries; it lives on.
    pub fn drain_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.inner.live_worker(id)?;
        if !worker.set_drained(true) {
            return Err(AdminError::Stopping(id));
        }
        info!(worker = id.0, kind = %worker.kind.name, "worker drained");
        self.inner.data.remove_ready(&worker);
        if worker.key().is_none() {
            // Sessions that should come back to it go to others. A key's queries wait: there is one worker for a key.
            self.inner.broker.release_lanes(&worker.kind.name, id, None);
        }
        self.inner.nudge.notify_one();
        Ok(())
    }

    /// Gives a drained worker queries again.
    pub fn resume_worker(&self, id: WorkerId) -> Result<(), AdminError> {
        let worker = self.inner.live_worker(id)?;
        if !worker.set_drained(false) {
            return Err(AdminError::Stopping(id));
        }
        info!(worker = id.0, kind = %worker.kind.name, "worker resumed");
        self.inner.data.enqueue_ready(&worker, self.inner.kinds.get(worker.slot).config().balance);
        self.inner.nudge.notify_one();
        Ok(())
    }

    /// Takes no new queries; those that were accepted run.
    pub fn drain(&self, reason: &str) -> Result<(), AdminError> {
        self.inner.is_up()?;
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        info!("pool drained by hand{reason}");
        *self.inner.drained.lock() = Some(reason.clone());
        self.inner
            .events
            .emit(None, || PoolEventBody::Pool { change: PoolChange::Drained, reason: format!("by hand{reason}") });
        Ok(())
    }

    /// Takes queries again after a drain.
    pub fn resume(&self) -> Result<(), AdminError> {
        self.inner.is_up()?;
        if self.inner.drained.lock().take().is_some() {
            info!("pool resumed");
            self.inner
                .events
                .emit(None, || PoolEventBody::Pool { change: PoolChange::Resumed, reason: "by hand".to_owned() });
        }
        Ok(())
    }

    /// Sees what happens from now on.
    #[must_use]
    pub fn watch(&self) -> EventSubscription {
        self.inner.events.subscribe()
    }
}

impl Inner {
    pub(super) fn is_up(&self) -> Result<(), AdminError> {
        if is_admitting(self.lifecycle.get()) { Ok(()) } else { Err(AdminError::ShuttingDown) }
    }

    fn live_worker(&self, id: WorkerId) -> Result<Arc<PoolWorker>, AdminError> {
        self.is_up()?;
        let worker = self.data.get(id).ok_or(AdminError::NoSuchWorker(id))?;
        if worker.state().is_live() { Ok(worker) } else { Err(AdminError::Stopping(id)) }
    }

    /// Whether a kind may have this many workers.
    fn check_size(&self, kind: &KindConfig, workers: usize) -> Result<(), AdminError> {
        let pool = &self.config().pool;
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
}
