//! A door for the benchmarks to what is not theirs otherwise. No part of the library.

use std::sync::Arc;

use crate::{
    config::{Balance, KindConfig},
    metrics::Metrics,
    model::WorkerId,
    worker::{PoolWorker, WorkerSpec},
};

use super::{EventBus, worker_data::WorkerData};

/// Ready workers of one kind, without processes.
#[derive(Debug)]
pub struct Stable {
    data: Arc<WorkerData>,
    balance: Balance,
}

impl Stable {
    #[must_use]
    pub fn new(kind: KindConfig, workers: u64) -> Self {
        let data = Arc::<WorkerData>::default();
        data.add_kind();
        let balance = kind.balance;
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
            data.add(worker.clone());
            data.enqueue_ready(&worker, balance);
        }
        Self { data, balance }
    }

    /// What a query costs the ready queue: a worker is reserved, and is ready again when it is done.
    #[must_use]
    pub fn reserve_and_give_back(&self) -> WorkerId {
        let reservation = self.data.reserve_ready_worker(0, self.balance).expect("a worker is ready");
        let worker = reservation.worker.clone();
        reservation.used();
        worker.unreserve();
        self.data.enqueue_ready(&worker, self.balance);
        worker.id
    }
}
