//! Kills one worker after the other while a load runs.

use std::time::Duration;

use tokio::{select, time};
use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    process::{self, KillOutcome},
};
use crate::{
    api::proto::{ListWorkersRequest, Worker, WorkerState},
    client::{Client, ClientError},
};

/// The largest page that the server gives; workers beyond it are not killed.
const PAGE_SIZE_MAX: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Chaos {
    client: Client,
    /// Empty for all kinds.
    kind: String,
    interval: Duration,
}

impl Chaos {
    /// Checks that the workers are processes of this machine: only those can be killed.
    pub(super) async fn prepare(client: Client, kind: String, interval: Duration) -> Result<Self, BenchError> {
        let chaos = Self { client, kind, interval };
        let workers = chaos.workers().await?;
        if workers.is_empty() {
            return Err(BenchError::NoWorker);
        }
        match workers.iter().find(|worker| !process::is_worker(worker.pid, worker.worker_id)) {
            Some(worker) => Err(BenchError::NotLocal { worker_id: worker.worker_id, pid: worker.pid }),
            None => Ok(chaos),
        }
    }

    /// Kills a worker at each interval until `over` is cancelled; returns the number of killed workers.
    pub(super) async fn run(&self, over: &CancellationToken) -> Result<u64, BenchError> {
        let mut killed = 0;
        let mut ticks = time::interval(self.interval);
        ticks.tick().await; // The first tick is immediate.
        loop {
            select! {
                () = over.cancelled() => return Ok(killed),
                _ = ticks.tick() => killed += u64::from(self.kill_one().await?),
            }
        }
    }

    /// Kills a random worker; returns false if there is none.
    async fn kill_one(&self) -> Result<bool, BenchError> {
        let mut workers = self.workers().await?;
        fastrand::shuffle(&mut workers);
        for worker in workers {
            if process::kill_worker(worker.pid, worker.worker_id)? == KillOutcome::Killed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The workers that serve; others may have no process of their own yet.
    async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        let request = ListWorkersRequest { kind: self.kind.clone(), page_size: PAGE_SIZE_MAX, ..Default::default() };
        let mut workers = self.client.call(self.client.admin().list_workers(request)).await?.workers;
        let serves = [WorkerState::Ready, WorkerState::Processing, WorkerState::Idle];
        workers.retain(|worker| worker.pid != 0 && serves.contains(&worker.state()));
        Ok(workers)
    }
}
