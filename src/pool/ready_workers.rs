//! The workers of one kind that can take a query, and their reservation for one.
//!
//! An entry of the queue is a hint: it is checked again under the worker's lock when it is popped, and entries of workers
//! that were stopped since fall out then. The queue's lock is taken inside a worker's lock, never the other way round.

use std::{sync::Arc, time::Instant};

use crate::{config::Balance, model::WorkerId, sync::Mutex, worker::PoolWorker};

use super::ready_queue::{ReadyPosition, ReadyQueue};

/// Holds the workers themselves, not their ids: dispatch needs no registry lock to look them up.
#[derive(Debug, Default)]
pub(super) struct ReadyWorkers {
    queue: Mutex<ReadyQueue>,
}

impl ReadyWorkers {
    /// Adds a worker, unless it is bound to a key and so cannot take any query of its kind.
    pub(super) fn enqueue(&self, worker: &Arc<PoolWorker>, balance: Balance) {
        if worker.key().is_some() {
            return;
        }
        let load = match balance {
            Balance::LeastLoaded => worker.dispatched(),
            Balance::RoundRobin | Balance::MostRecent => 0,
        };
        worker.if_available(|| self.queue.lock().push(worker.clone(), load));
    }

    pub(super) fn remove(&self, id: WorkerId) -> Option<ReadyPosition> {
        self.queue.lock().remove(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Pops the next worker that can still take a query, and marks it busy.
    pub(super) fn reserve_next(self: &Arc<Self>, balance: Balance) -> Option<Reservation> {
        let now = Instant::now();
        loop {
            let (position, worker) = match balance {
                Balance::RoundRobin | Balance::LeastLoaded => self.queue.lock().pop_first()?,
                Balance::MostRecent => self.queue.lock().pop_last()?,
            };
            if worker.reserve(now) {
                let ready = self.clone();
                return Some(Reservation { ready, position: Some(position), balance, worker, now, used: false });
            }
        }
    }

    /// Marks this worker busy, if it can take a query.
    pub(super) fn reserve(self: &Arc<Self>, worker: &Arc<PoolWorker>, balance: Balance) -> Option<Reservation> {
        let now = Instant::now();
        if !worker.reserve(now) {
            return None;
        }
        let position = self.remove(worker.id);
        Some(Reservation { ready: self.clone(), position, balance, worker: worker.clone(), now, used: false })
    }
}

/// A worker marked busy for a query that is about to be claimed. Dropping it without `mark_used` frees the worker.
#[derive(Debug)]
pub(super) struct Reservation {
    ready: Arc<ReadyWorkers>,
    /// Its position in the queue before the reservation.
    position: Option<ReadyPosition>,
    balance: Balance,
    pub worker: Arc<PoolWorker>,
    /// Time of the reservation, and of the dispatch that follows.
    pub now: Instant,
    used: bool,
}

impl Reservation {
    /// The worker has its query now.
    pub(super) fn mark_used(mut self) {
        self.used = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Self { ready, worker, .. } = self;
        if self.used || !worker.unreserve() || worker.key().is_some() {
            return;
        }
        match self.position {
            Some(position) => worker.if_available(|| ready.queue.lock().put_back(position, worker.clone())),
            // It had none, or its entry was popped and dropped while it was reserved.
            None => ready.enqueue(worker, self.balance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three workers that became ready in the order of their ids.
    struct Fixture {
        ready: Arc<ReadyWorkers>,
        workers: Vec<Arc<PoolWorker>>,
        balance: Balance,
    }

    impl Fixture {
        fn new(balance: Balance) -> Self {
            let workers: Vec<_> = (1..=3).map(PoolWorker::for_test).collect();
            let ready = Arc::<ReadyWorkers>::default();
            for worker in &workers {
                ready.enqueue(worker, balance);
            }
            Self { ready, workers, balance }
        }

        /// Gives the next worker a query.
        fn begin(&self) -> u64 {
            let reservation = self.ready.reserve_next(self.balance).expect("a worker is free");
            let id = reservation.worker.id.0;
            reservation.mark_used();
            id
        }

        /// The worker's query is over.
        fn end(&self, id: u64) {
            let worker = self.workers.iter().find(|worker| worker.id.0 == id).expect("it is one of the three");
            worker.serve_for_test();
            self.ready.enqueue(worker, self.balance);
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
        let kind = Fixture::new(Balance::RoundRobin);
        assert_eq!(kind.run(7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!((kind.begin(), kind.begin()), (2, 3));
        assert_eq!(kind.run(2), [1, 1], "only one is free");
        kind.end(3);
        kind.end(2);
        assert_eq!(kind.run(5), [1, 3, 2, 1, 3]);
    }

    #[test]
    fn least_loaded_takes_the_one_that_has_run_fewest_and_among_equals_the_one_that_has_waited_longest() {
        let kind = Fixture::new(Balance::LeastLoaded);
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
        let kind = Fixture::new(Balance::MostRecent);
        assert_eq!(kind.run(3), [3, 3, 3]);
        assert_eq!((kind.begin(), kind.begin()), (3, 2));
        kind.end(3);
        assert_eq!(kind.run(2), [3, 3]);
        kind.end(2);
        assert_eq!((kind.begin(), kind.begin(), kind.begin()), (2, 3, 1));
    }

    #[test]
    fn worker_that_was_reserved_in_vain_is_back_where_it_was() {
        for (balance, next) in
            [(Balance::RoundRobin, [1, 2, 3]), (Balance::LeastLoaded, [1, 2, 3]), (Balance::MostRecent, [3, 2, 1])]
        {
            let kind = Fixture::new(balance);
            drop(kind.ready.reserve_next(balance).expect("a worker is free"));
            let two = &kind.workers[1];
            drop(kind.ready.reserve(two, balance).expect("it is free"));
            assert_eq!([kind.begin(), kind.begin(), kind.begin()], next, "{balance:?}");
            assert!(kind.ready.reserve_next(balance).is_none());
            assert!(kind.ready.reserve(two, balance).is_none(), "it is busy");
        }
    }

    #[test]
    fn drained_worker_is_passed_over_and_comes_back_at_the_end() {
        let kind = Fixture::new(Balance::RoundRobin);
        let one = &kind.workers[0];
        assert!(one.set_drained(true));
        kind.ready.remove(one.id);
        assert_eq!(kind.run(3), [2, 3, 2]);
        assert!(kind.ready.reserve(one, Balance::RoundRobin).is_none());
        assert!(one.set_drained(false));
        kind.ready.enqueue(one, Balance::RoundRobin);
        assert_eq!(kind.run(3), [3, 2, 1]);
    }
}
