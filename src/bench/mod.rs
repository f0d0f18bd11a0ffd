//! The load generator: makes queries, runs them many at a time in rounds, and measures how long they take.

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
mod temp_dir;

use std::io;

use thiserror::Error;

pub use baseline::{BaselineError, serve_baseline};
pub use drive::{Call, Extent, Load};
pub use payload::{PayloadTooSmall, payload};
pub use progress::{Progress, Standing};
pub use results::{Ratio, Results, Single, Summary, UnderChaos};
pub use run::{Compare, Session};
pub use spawned_server::SpawnedServer;
pub use stats::{ErrorFigures, Figures, Percentiles};
pub use subject::Subject;

use crate::client::ClientError;
pub use crate::workers::echo::SIZES;

/// Why a run could not begin or go on.
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
    Stranger { worker_id: u64, pid: u32 },
    #[error("the server of this run's own failed: {0}")]
    SpawnedServer(String),
    #[error("{0}")]
    System(#[from] io::Error),
}
