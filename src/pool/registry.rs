//! The registry of workers: the live ones, and the most recent of those that ended.
//!
//! Lock order: no thread holds two worker locks, or takes the registry lock while it holds a worker lock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    model::{DeathCertificate, WorkerId},
    state::{Transition, WorkerState},
    sync::Mutex,
    worker::{PoolWorker, UsageSample, WorkerSnapshot},
};

/// Ended workers that are kept for inspection.
const ENDED_WORKERS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Registry {
    live: Mutex<BTreeMap<WorkerId, Arc<PoolWorker>>>,
    ended: Mutex<VecDeque<WorkerDetails>>,
    last_id: AtomicU64,
}

/// Everything known about a worker, live or recently ended.
#[derive(Debug, Clone)]
pub struct WorkerDetails {
    pub worker: WorkerSnapshot,
    pub history: Vec<Transition<WorkerState>>,
    pub samples: Vec<UsageSample>,
    /// `None` while the worker lives.
    pub certificate: Option<Arc<DeathCertificate>>,
}

impl WorkerDetails {
    fn new(worker: &PoolWorker, certificate: Option<Arc<DeathCertificate>>) -> Self {
        Self { worker: worker.snapshot(), history: worker.history(), samples: worker.samples(), certificate }
    }
}

impl Registry {
    pub(super) fn next_id(&self) -> WorkerId {
        WorkerId(self.last_id.fetch_add(1, Relaxed) + 1)
    }

    pub(super) fn add(&self, worker: Arc<PoolWorker>) {
        self.live.lock().insert(worker.id, worker);
    }

    /// Moves a worker from the live to the ended ones. It is added there first, so that a lookup always finds it.
    pub(super) fn remove(&self, worker: &PoolWorker, certificate: Arc<DeathCertificate>) {
        let details = WorkerDetails::new(worker, Some(certificate));
        let mut ended = self.ended.lock();
        if ended.len() == ENDED_WORKERS_MAX {
            ended.pop_front();
        }
        ended.push_back(details);
        drop(ended);
        self.live.lock().remove(&worker.id);
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<Arc<PoolWorker>> {
        self.live.lock().get(&id).cloned()
    }

    pub(super) fn details(&self, id: WorkerId) -> Option<WorkerDetails> {
        if let Some(worker) = self.get(id) {
            return Some(WorkerDetails::new(&worker, None));
        }
        self.ended.lock().iter().find(|details| details.worker.id == id).cloned()
    }

    /// All workers that have not ended, in order of id.
    pub(super) fn snapshot(&self) -> Vec<Arc<PoolWorker>> {
        self.live.lock().values().cloned().collect()
    }

    pub(super) fn all_of_kind(&self, slot: usize) -> Vec<Arc<PoolWorker>> {
        let mut workers = self.snapshot();
        workers.retain(|worker| worker.slot == slot);
        workers
    }

    pub(super) fn count(&self) -> usize {
        self.live.lock().len()
    }

    /// Workers of a kind that are starting or in service.
    pub(super) fn live_count(&self, slot: usize) -> usize {
        self.all_of_kind(slot).iter().filter(|worker| worker.state().is_live()).count()
    }

    /// Workers that run a query. Counted on request, so that it cannot drift.
    pub(super) fn busy_count(&self) -> usize {
        self.snapshot().iter().filter(|worker| worker.is_busy()).count()
    }
}
