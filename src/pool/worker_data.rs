//! The registry of workers and the queues of those that can take a query.
//!
//! Three primitives, and a rule for each:
//! - `management_lock` guards the registry itself: adding, removing, taking a snapshot. Never a worker's own state.
//! - `PoolWorker.lock` guards all that changes about one worker. Nobody holds two of them, and nobody takes the
//!   `management_lock` while holding one.
//! - `ready_queue` lists workers that became able to take a query, in the order in which their kind gives queries to them. An
//!   entry is a hint: whoever pops it checks again under the worker's lock, and entries of workers that were stopped
//!   since fall out on their own.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use crate::{
    config::Balance,
    model::WorkerId,
    sync::{Mutex, RwLock},
    worker::PoolWorker,
};

use super::ready_queue::{Place, ReadyQueue};

#[derive(Debug, Default)]
pub(super) struct WorkerData {
    management_lock: Mutex<BTreeMap<WorkerId, Arc<PoolWorker>>>,
    /// One queue for each kind. It holds the workers themselves, not their ids: to look an id up, dispatch would
    /// have to take the registry lock.
    ready_queue: RwLock<Vec<Arc<Mutex<ReadyQueue>>>>,
}

impl WorkerData {
    /// Makes a queue for one more kind.
    pub(super) fn add_kind(&self) {
        self.ready_queue.write().push(Arc::default());
    }

    fn queue(&self, slot: usize) -> Arc<Mutex<ReadyQueue>> {
        self.ready_queue.read()[slot].clone()
    }

    pub(super) fn add(&self, worker: Arc<PoolWorker>) {
        self.management_lock.lock().insert(worker.id, worker);
    }

    /// Takes a worker out of the registry and out of its kind's queue, where it may still stand if it died idle.
    pub(super) fn remove(&self, id: WorkerId) -> Option<Arc<PoolWorker>> {
        let worker = self.management_lock.lock().remove(&id)?;
        self.queue(worker.slot).lock().remove(id);
        Some(worker)
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<Arc<PoolWorker>> {
        self.management_lock.lock().get(&id).cloned()
    }

    /// All workers, in order of id.
    pub(super) fn snapshot(&self) -> Vec<Arc<PoolWorker>> {
        self.management_lock.lock().values().cloned().collect()
    }

    pub(super) fn all_of_kind(&self, slot: usize) -> Vec<Arc<PoolWorker>> {
        let mut workers = self.snapshot();
        workers.retain(|worker| worker.slot == slot);
        workers
    }

    pub(super) fn count(&self) -> usize {
        self.management_lock.lock().len()
    }

    /// Workers that run a query. Counted when asked for, never tracked.
    pub(super) fn busy_count(&self) -> usize {
        self.snapshot().iter().filter(|worker| worker.is_busy()).count()
    }

    /// Puts a worker that can take any query of its kind into the queue. One that is bound to a key can not.
    pub(super) fn enqueue_ready(&self, worker: &Arc<PoolWorker>, balance: Balance) {
        if worker.key().is_some() {
            return;
        }
        let load = match balance {
            Balance::LeastLoaded => worker.dispatched(),
            Balance::RoundRobin | Balance::MostRecent => 0,
        };
        let queue = self.queue(worker.slot);
        worker.if_available(|| queue.lock().push(worker.clone(), load));
    }

    /// Takes a worker out of its kind's queue, though it lives.
    pub(super) fn remove_ready(&self, worker: &PoolWorker) {
        self.queue(worker.slot).lock().remove(worker.id);
    }

    pub(super) fn has_ready(&self, slot: usize) -> bool {
        !self.queue(slot).lock().is_empty()
    }

    /// Pops the next worker in the kind's order that can really take a query, and marks it busy.
    pub(super) fn reserve_ready_worker(self: &Arc<Self>, slot: usize, balance: Balance) -> Option<Reservation> {
        let (queue, now) = (self.queue(slot), Instant::now());
        loop {
            let (place, worker) = match balance {
                Balance::RoundRobin | Balance::LeastLoaded => queue.lock().pop_first()?,
                Balance::MostRecent => queue.lock().pop_last()?,
            };
            if worker.reserve(now) {
                return Some(Reservation { data: self.clone(), place: Some(place), balance, worker, now, used: false });
            }
        }
    }

    /// Marks just this worker busy, if it can take a query.
    pub(super) fn reserve_worker(self: &Arc<Self>, worker: &Arc<PoolWorker>, balance: Balance) -> Option<Reservation> {
        let now = Instant::now();
        if !worker.reserve(now) {
            return None;
        }
        let place = self.queue(worker.slot).lock().remove(worker.id);
        Some(Reservation { data: self.clone(), place, balance, worker: worker.clone(), now, used: false })
    }

    /// Puts a worker that was reserved in vain back where it was.
    fn restore(&self, place: Option<Place>, worker: &Arc<PoolWorker>, balance: Balance) {
        if !worker.unreserve() || worker.key().is_some() {
            return;
        }
        let Some(place) = place else {
            // It had no place, or someone met its entry while it was reserved and threw it away.
            return self.enqueue_ready(worker, balance);
        };
        let queue = self.queue(worker.slot);
        worker.if_available(|| queue.lock().put_back(place, worker.clone()));
    }
}

/// A worker marked busy for a query that is about to be claimed; given back if none is.
#[derive(Debug)]
pub(super) struct Reservation {
    data: Arc<WorkerData>,
    /// Where it stood in its kind's queue.
    place: Option<Place>,
    balance: Balance,
    pub worker: Arc<PoolWorker>,
    /// Time of the reservation, and of the dispatch that follows.
    pub now: Instant,
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
            self.data.restore(self.place, &self.worker, self.balance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three workers of one kind that became ready in the order of their ids.
    struct Kind {
        data: Arc<WorkerData>,
        balance: Balance,
    }

    impl Kind {
        fn new(balance: Balance) -> Self {
            let kind = Self { data: Arc::default(), balance };
            kind.data.add_kind();
            for id in 1..=3 {
                let worker = PoolWorker::for_test(id);
                kind.data.add(worker.clone());
                kind.data.enqueue_ready(&worker, balance);
            }
            kind
        }

        /// Gives the next worker a query.
        fn begin(&self) -> u64 {
            let reservation = self.data.reserve_ready_worker(0, self.balance).expect("a worker is free");
            let id = reservation.worker.id.0;
            reservation.used();
            id
        }

        /// The worker's query is over.
        fn end(&self, id: u64) {
            let worker = self.data.get(WorkerId(id)).expect("it is there");
            worker.serve_for_test();
            self.data.enqueue_ready(&worker, self.balance);
        }

        /// Queries one after the other.
        fn run(&self, queries: usize) -> Vec<u64> {
            let run = |_| {
                let id = self.begin();
                self.end(id);
                id
            };
            (0..queries).map(run).collect()
        }
    }

    #[test]
    fn round_robin_takes_the_one_that_has_waited_longest() {
        let kind = Kind::new(Balance::RoundRobin);
        assert_eq!(kind.run(7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!((kind.begin(), kind.begin()), (2, 3));
        assert_eq!(kind.run(2), [1, 1], "only one is free");
        kind.end(3);
        kind.end(2);
        assert_eq!(kind.run(5), [1, 3, 2, 1, 3]);
    }

    #[test]
    fn least_loaded_takes_the_one_that_has_run_fewest_and_among_equals_the_one_that_has_waited_longest() {
        let kind = Kind::new(Balance::LeastLoaded);
        assert_eq!((kind.begin(), kind.begin()), (1, 2));
        assert_eq!(kind.run(3), [3, 3, 3]);
        kind.end(2);
        kind.end(1);
        // They have run one each, and the third one three.
        assert_eq!(kind.run(4), [2, 1, 2, 1]);
        assert_eq!(kind.run(3), [3, 2, 1], "all have run three");
    }

    #[test]
    fn most_recent_takes_the_one_that_was_used_last() {
        let kind = Kind::new(Balance::MostRecent);
        assert_eq!(kind.run(3), [3, 3, 3]);
        assert_eq!((kind.begin(), kind.begin()), (3, 2));
        kind.end(3);
        assert_eq!(kind.run(2), [3, 3]);
        kind.end(2);
        assert_eq!((kind.begin(), kind.begin(), kind.begin()), (2, 3, 1));
    }

    #[test]
    fn a_worker_that_was_reserved_in_vain_is_back_where_it_was() {
        for (balance, next) in
            [(Balance::RoundRobin, [1, 2, 3]), (Balance::LeastLoaded, [1, 2, 3]), (Balance::MostRecent, [3, 2, 1])]
        {
            let kind = Kind::new(balance);
            drop(kind.data.reserve_ready_worker(0, balance).expect("a worker is free"));
            let two = kind.data.get(WorkerId(2)).unwrap();
            drop(kind.data.reserve_worker(&two, balance).expect("it is free"));
            assert_eq!([kind.begin(), kind.begin(), kind.begin()], next, "{balance:?}");
            assert!(kind.data.reserve_ready_worker(0, balance).is_none());
            assert!(kind.data.reserve_worker(&two, balance).is_none(), "it is busy");
        }
    }

    #[test]
    fn a_drained_worker_is_passed_over_and_comes_back_at_the_end() {
        let kind = Kind::new(Balance::RoundRobin);
        let one = kind.data.get(WorkerId(1)).unwrap();
        assert!(one.set_drained(true));
        kind.data.remove_ready(&one);
        assert_eq!(kind.run(3), [2, 3, 2]);
        assert!(kind.data.reserve_worker(&one, Balance::RoundRobin).is_none());
        assert!(one.set_drained(false));
        kind.data.enqueue_ready(&one, Balance::RoundRobin);
        assert_eq!(kind.run(3), [3, 2, 1]);
    }
}
