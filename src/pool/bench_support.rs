//! Access for the benchmarks to the ready queue. No part of the library.

use std::sync::Arc;

use crate::{
    config::{Balance, KindConfig},
    metrics::Metrics,
    model::WorkerId,
    worker::{PoolWorker, WorkerSpec},
};

use super::{EventBus, ready_workers::ReadyWorkers};

/// Ready workers of one kind, without processes.
#[derive(Debug)]
pub struct ReadyWorkersBench {
    ready: Arc<ReadyWorkers>,
    balance: Balance,
}

impl ReadyWorkersBench {
    #[must_use]
    pub fn new(kind: KindConfig, workers: u64) -> Self {
        let bench = Self { ready: Arc::default(), balance: kind.balance };
        let kind = Arc::new(kind);
        let metrics = Metrics::new().kind(&kind.name);
        for id in 1..=workers {
            let worker = Arc::new(PoolWorker::new(WorkerSpec {
                id: WorkerId(id),
                slot: 0,
                kind: kind.clone(),
                key: None,
                metrics: metrics.clone(),
                observer: Arc::new(EventBus::default()),
            }));
            worker.mark_ready_for_bench();
            bench.ready.enqueue(&worker, bench.balance);
        }
        bench
    }

    /// The work of the ready queue for one query: a worker is reserved, and is ready again when it is done.
    #[must_use]
    pub fn reserve_and_give_back(&self) -> WorkerId {
        let reservation = self.ready.reserve_next(self.balance).expect("a worker is ready");
        let worker = reservation.worker.clone();
        reservation.mark_used();
        worker.unreserve();
        self.ready.enqueue(&worker, self.balance);
        worker.id
    }
}
