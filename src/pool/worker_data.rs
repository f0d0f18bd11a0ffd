//! The registry of workers and the queues of those that can take a query.
//!
//! Three primitives, and a rule for each:
//! - `management_lock` guards the registry itself: adding, removing, taking a snapshot. Never a worker's own state.
//! - `PoolWorker.lock` guards all that changes about one worker. Nobody holds two of them, and nobody takes the
//!   `management_lock` while holding one.
//! - `ready_queue` lists workers that became able to take a query, in rotation order. An entry is a hint: whoever pops
//!   it checks again under the worker's lock, and entries of workers that were stopped since fall out on their own.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{model::WorkerId, sync::Mutex, worker::PoolWorker};

#[derive(Debug)]
pub(super) struct WorkerData {
    management_lock: Mutex<BTreeMap<WorkerId, Arc<PoolWorker>>>,
    /// One queue for each kind. It holds the workers themselves, not their ids: to look an id up, dispatch would
    /// have to take the registry lock.
    ready_queue: Vec<Mutex<VecDeque<Arc<PoolWorker>>>>,
}

impl WorkerData {
    pub(super) fn new(kinds: usize) -> Self {
        Self { management_lock: Mutex::default(), ready_queue: (0..kinds).map(|_| Mutex::default()).collect() }
    }

    pub(super) fn add(&self, worker: Arc<PoolWorker>) {
        self.management_lock.lock().insert(worker.id, worker);
    }

    /// Takes a worker out of the registry and out of its kind's rotation, where it may still stand if it died idle.
    pub(super) fn remove(&self, id: WorkerId, kind: impl Fn(&PoolWorker) -> usize) -> Option<Arc<PoolWorker>> {
        let worker = self.management_lock.lock().remove(&id)?;
        self.ready_queue[kind(&worker)].lock().retain(|ready| ready.id != id);
        Some(worker)
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<Arc<PoolWorker>> {
        self.management_lock.lock().get(&id).cloned()
    }

    /// All workers, in order of id.
    pub(super) fn snapshot(&self) -> Vec<Arc<PoolWorker>> {
        self.management_lock.lock().values().cloned().collect()
    }

    pub(super) fn all_of_kind(&self, kind: &str) -> Vec<Arc<PoolWorker>> {
        let mut workers = self.snapshot();
        workers.retain(|worker| *worker.kind.name == *kind);
        workers
    }

    pub(super) fn count(&self) -> usize {
        self.management_lock.lock().len()
    }

    /// Workers that run a query. Counted when asked for, never tracked.
    pub(super) fn busy_count(&self) -> usize {
        self.snapshot().iter().filter(|worker| worker.is_busy()).count()
    }

    /// Puts a worker that can take a query at the end of the rotation.
    pub(super) fn enqueue_ready(&self, kind: usize, worker: &Arc<PoolWorker>) {
        worker.if_available(|| self.ready_queue[kind].lock().push_back(worker.clone()));
    }

    pub(super) fn has_ready(&self, kind: usize) -> bool {
        !self.ready_queue[kind].lock().is_empty()
    }

    /// Pops the next worker of the rotation that can really take a query, and marks it busy.
    pub(super) fn reserve_ready_worker(self: &Arc<Self>, kind: usize) -> Option<Reservation> {
        loop {
            let worker = self.ready_queue[kind].lock().pop_front()?;
            if worker.reserve() {
                return Some(Reservation { data: self.clone(), kind, worker, used: false });
            }
        }
    }

    /// Puts a worker that was reserved in vain back where it was.
    fn restore(&self, kind: usize, worker: &Arc<PoolWorker>) {
        if worker.unreserve() {
            worker.if_available(|| self.ready_queue[kind].lock().push_front(worker.clone()));
        }
    }
}

/// A worker marked busy for a query that is about to be claimed; given back if none is.
#[derive(Debug)]
pub(super) struct Reservation {
    data: Arc<WorkerData>,
    kind: usize,
    pub worker: Arc<PoolWorker>,
    used: bool,
}

impl Reservation {
    /// The worker has its query now.
    pub(super) fn used(mut self) {
        self.used = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.used {
            self.data.restore(self.kind, &self.worker);
        }
    }
}
