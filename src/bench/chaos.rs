//! Kills one worker after the other while a load runs.

use std::time::Duration;

use tokio::{select, time};
use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    process::{self, Kill},
};
use crate::{
    api::proto::{ListWorkersRequest, Worker, WorkerState},
    client::{Client, ClientError},
};

/// The most workers that the server tells of at once; others live.
const PAGE: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Chaos {
    client: Client,
    /// Empty for all.
    kind: String,
    interval: Duration,
}

impl Chaos {
    /// Looks whether the workers are processes of this machine, as only those can be killed.
    pub(super) async fn prepare(client: Client, kind: String, interval: Duration) -> Result<Self, BenchError> {
        let chaos = Self { client, kind, interval };
        let workers = chaos.workers().await?;
        if workers.is_empty() {
            return Err(BenchError::NoWorker);
        }
        match workers.iter().find(|worker| !process::is_worker(worker.pid, worker.worker_id)) {
            Some(stranger) => Err(BenchError::Stranger { worker_id: stranger.worker_id, pid: stranger.pid }),
            None => Ok(chaos),
        }
    }

    /// Kills until told to stop, and gives how many.
    pub(super) async fn rage(&self, over: &CancellationToken) -> Result<u64, BenchError> {
        let mut killed = 0;
        let mut ticks = time::interval(self.interval);
        ticks.tick().await; // At once.
        loop {
            select! {
                () = over.cancelled() => return Ok(killed),
                _ = ticks.tick() => killed += u64::from(self.kill_one().await?),
            }
        }
    }

    /// Whether there was one to kill.
    async fn kill_one(&self) -> Result<bool, BenchError> {
        let mut workers = self.workers().await?;
        fastrand::shuffle(&mut workers);
        for worker in workers {
            if process::kill_worker(worker.pid, worker.worker_id)? == Kill::Killed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Those that serve: others may have no process of their own yet.
    async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        let request = ListWorkersRequest { kind: self.kind.clone(), page_size: PAGE, ..Default::default() };
        let mut workers = self.client.list_workers(request).await?.workers;
        let serves = [WorkerState::Ready, WorkerState::Processing, WorkerState::Idle];
        workers.retain(|worker| worker.pid != 0 && serves.contains(&worker.state()));
        Ok(workers)
    }
}
