//! What is measured in turn with others, and how.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    chaos::Chaos,
    drive::{Extent, Load, Target},
    progress::Progress,
    raw::Raw,
    round::Round,
};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The server that was asked for.
    Pool,
    /// A bare server that gives the same answers.
    Baseline,
    /// The bare server's answer to a unary call.
    Unary,
    /// An echo worker on a socket.
    Raw,
    /// The server, while its workers are killed.
    Chaos,
}

#[derive(Debug)]
pub(super) struct Contestant {
    pub subject: Subject,
    pub course: Course,
}

#[derive(Debug)]
pub(super) enum Course {
    Load(Arc<Target>, Load),
    Raw(Arc<Mutex<Raw>>),
    Chaos(Arc<Target>, Load, Box<Chaos>),
}

/// A round, and how many workers were killed in it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub round: Round,
    pub killed: u64,
}

impl Course {
    pub(super) fn raw(raw: Raw) -> Self {
        Self::Raw(Arc::new(Mutex::new(raw)))
    }
}

impl Contestant {
    pub(super) async fn measure(
        &self,
        extent: Extent,
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Result<Outcome, BenchError> {
        match &self.course {
            Course::Load(target, load) => {
                Ok(Outcome { round: target.drive(load, extent, progress, stop).await, killed: 0 })
            }
            Course::Raw(raw) => {
                let (raw, stop) = (raw.clone(), stop.clone());
                let round = spawn_blocking(move || raw.lock().drive(extent, &stop)).await.map_err(io::Error::other)?;
                Ok(Outcome { round: round?, killed: 0 })
            }
            Course::Chaos(target, load, chaos) => {
                let over = CancellationToken::new();
                let drive = async {
                    let round = target.drive(load, extent, progress, stop).await;
                    over.cancel();
                    round
                };
                let (round, killed) = tokio::join!(drive, chaos.rage(&over));
                Ok(Outcome { round, killed: killed? })
            }
        }
    }
}
