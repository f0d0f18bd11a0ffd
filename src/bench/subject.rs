//! The subjects of a run, and the load on each.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    chaos::Chaos,
    drive::{LoadSpec, LoadTarget, RoundLength},
    progress::Progress,
    raw::RawRoundTrip,
    round::Round,
};

/// A thing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The server.
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
pub(super) enum Workload {
    Load(Arc<LoadTarget>, LoadSpec),
    Raw(Arc<Mutex<RawRoundTrip>>),
    Chaos(Arc<LoadTarget>, LoadSpec, Box<Chaos>),
}

impl Workload {
    /// Runs one round, or a part of it if `stop` is cancelled meanwhile.
    pub(super) async fn run(
        &self,
        length: RoundLength,
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Result<Round, BenchError> {
        match self {
            Self::Load(target, load) => Ok(target.run(load, length, progress, stop).await),
            Self::Raw(raw) => {
                let (raw, stop) = (raw.clone(), stop.clone());
                let round = spawn_blocking(move || raw.lock().run(length, &stop)).await.map_err(io::Error::other)?;
                Ok(round?)
            }
            Self::Chaos(target, load, chaos) => {
                let over = CancellationToken::new();
                let load = async {
                    let round = target.run(load, length, progress, stop).await;
                    over.cancel();
                    round
                };
                let (round, killed) = tokio::join!(load, chaos.run(&over));
                Ok(Round { killed: killed?, ..round })
            }
        }
    }
}
