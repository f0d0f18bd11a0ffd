//! The load generator: makes queries, runs them many at a time in rounds, and measures how long they take.

mod chaos;
mod contestant;
mod drive;
mod figures;
mod floor;
mod own_floor;
mod own_server;
mod payload;
mod process;
mod progress;
mod raw;
mod results;
mod scratch;
mod session;
mod tally;

use std::io;

use thiserror::Error;

pub use contestant::Subject;
pub use drive::{Call, Extent, Load};
pub use figures::{ErrorFigures, Figures, Percentiles};
pub use floor::{FloorError, serve_floor};
pub use own_server::OwnServer;
pub use payload::{PayloadTooSmall, payload};
pub use progress::{Progress, Standing};
pub use results::{Ratio, Results, Single, Summary, UnderChaos};
pub use session::{Compare, Session};

use crate::client::ClientError;
pub use crate::echo::SIZES;

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
    OwnServer(String),
    #[error("{0}")]
    System(#[from] io::Error),
}
