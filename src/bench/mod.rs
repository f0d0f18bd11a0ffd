//! The load generator: runs many concurrent queries in rounds and measures their rates and latencies.

mod baseline;
mod baseline_server;
mod chaos;
mod drive;
mod payload;
mod process;
mod progress;
mod raw;
mod results;
mod round;
mod run;
mod spawned_server;
mod stats;
mod subject;

use std::io;

use thiserror::Error;

pub use baseline::serve_baseline;
pub use drive::{LoadCall, LoadSpec, RoundLength};
pub use payload::payload;
pub use progress::{Progress, ProgressSnapshot};
pub use results::{BaselineRatio, BenchSummary, ChaosStats, RunResults, SingleQueryRatio};
pub use round::ErrorStats;
pub use run::{BenchRun, CompareOptions};
pub use spawned_server::SpawnedServer;
pub use stats::{Percentiles, SubjectStats};
pub use subject::Subject;

use crate::client::ClientError;
pub use crate::workers::echo::MESSAGE_SIZES;

/// Failure to begin or continue a run.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error(transparent)]
    Call(#[from] ClientError),
    #[error("there is no worker to kill")]
    NoWorker,
    #[error(
        "process {pid} of this machine is not worker {worker_id} of the server; workers can be killed only where they run, by \
         their user or root"
    )]
    NotLocal { worker_id: u64, pid: u32 },
    #[error("the spawned server failed: {0}")]
    SpawnedServer(String),
    #[error("{0}")]
    System(#[from] io::Error),
}
