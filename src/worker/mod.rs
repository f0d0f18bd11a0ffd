//! One worker: its process, its connection, its state, and the record of its end.

mod connection;
mod driver;
mod end;
mod facts;
#[cfg(test)]
#[cfg(feature = "model-check")]
pub(crate) mod model_check;
#[cfg(test)]
mod on_paper;
mod outbox;
mod output;
mod pool_worker;
mod process;
mod running;
mod sandbox;
mod serve;
mod socket;
mod start;
mod stop;
mod task;
mod usage;
mod vitals;
mod wake;
mod wear;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    broker::{Lease, Output},
    model::{DeathCertificate, Failure, QueryId, StopStage},
    protocol::JsonText,
    state::WorkerState,
};

pub use driver::{Surroundings, run};
pub use facts::{Introduction, Snapshot};
pub use pool_worker::{Birth, PoolWorker, StopMode};
pub use process::Spawner;
pub use sandbox::{FileAccess, GUARD_ARGUMENT, LAUNCH_ARGUMENT, probe_files, run_guardian, run_launcher};
pub use socket::SocketDir;
pub use usage::Sample;

/// The pool, as its workers see it.
#[async_trait]
pub trait Host: Send + Sync + fmt::Debug {
    /// The worker can take a query: it has just become ready, or its query is over.
    async fn ready(&self, worker: &Arc<PoolWorker>);

    /// The worker told the id of the session that its query belongs to.
    fn session(&self, worker: &Arc<PoolWorker>, session_id: &str);

    /// The worker is done with a query, one way or another. The host decides how the query goes on.
    async fn conclude(&self, worker: &Arc<PoolWorker>, lease: Lease, outputs: Vec<Output>, conclusion: Conclusion);
}

/// A change of a worker's state.
#[derive(Debug)]
pub struct WorkerStateChange<'a> {
    pub worker: &'a PoolWorker,
    /// `None` for a new worker.
    pub from: Option<WorkerState>,
    pub to: WorkerState,
    pub reason: Cow<'static, str>,
    /// The query that the worker runs, or has just ended.
    pub query: Option<&'a QueryId>,
}

/// Receives the state changes of workers, with the worker's lock held: it must not block or look at the worker's data.
pub trait WorkerObserver: Send + Sync + fmt::Debug {
    fn on_state_change(&self, change: WorkerStateChange<'_>);
}

#[cfg(test)]
impl WorkerObserver for () {
    fn on_state_change(&self, _: WorkerStateChange<'_>) {}
}

/// How a worker came to be done with its query.
#[derive(Debug)]
pub enum Conclusion {
    Complete {
        result: JsonText,
    },
    /// The worker reported an error and lives on.
    Reported(Box<Failure>),
    /// Someone asked for the query to end.
    Cancelled {
        reason: Arc<str>,
        stage: StopStage,
    },
    /// It ran past its time.
    TimedOut {
        limit: Duration,
        stage: StopStage,
        certificate: Option<Arc<DeathCertificate>>,
    },
    /// The worker ended under it, by itself or because the server stops.
    Died(Arc<DeathCertificate>),
    /// Its readers did not keep up with it.
    Overflowed,
    /// The worker let go of it because the server stops.
    CutShort,
    /// Another replica runs it now.
    LeaseLost,
}

impl Conclusion {
    /// What went wrong, if anything did.
    fn trouble(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Complete { .. } | Self::Cancelled { .. } => return None,
            Self::Reported(failure) => Cow::Borrowed(&failure.message),
            Self::TimedOut { limit, .. } => format!("ran longer than {limit:?}").into(),
            Self::Died(certificate) => certificate.summary().into(),
            Self::Overflowed => "its readers did not keep up".into(),
            Self::CutShort => "the server stops".into(),
            Self::LeaseLost => "it runs elsewhere".into(),
        })
    }
}
