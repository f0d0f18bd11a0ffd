//! The pool: keeps workers warm, gives each waiting query to one that can run it, replaces those that end.

mod dead_letters;
mod dispatch;
mod drain;
mod health;
mod kinds;
#[cfg(test)]
#[cfg(feature = "model-check")]
mod model_check;
mod recovery;
mod supervisor;
mod worker_data;

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use crate::{
    broker::{Broker, NewQuery, SubmitError, Submitted},
    config::Config,
    metrics::Metrics,
    model::{Certificate, QueryId, QuerySpec, WorkerId},
    state::{Machine, Occupancy, PoolLifecycle, Transition, WorkerState},
    worker::{PoolWorker, Sample, Snapshot, SocketDir, Spawner},
};

pub use dead_letters::Selection;
pub use drain::Drained;
pub use health::{Health, KindHealth};
pub use kinds::Unroutable;
pub use supervisor::{StopSignals, Supervisor};

use kinds::Kind;
use worker_data::WorkerData;

/// How many ended workers can still be asked about.
const REMEMBERED_DEATHS: usize = 256;

/// A cheap handle on the pool.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    kinds: Vec<Kind>,
    data: Arc<WorkerData>,
    broker: Arc<dyn Broker>,
    metrics: Arc<Metrics>,
    lifecycle: Machine<PoolLifecycle>,
    next_worker: AtomicU64,
    /// Wakes the supervisor: a query waits and no worker is ready, or the pool is to stop.
    nudge: Notify,
    deaths: Mutex<VecDeque<Portrait>>,
    /// Running queries that the server's stop ended.
    cut_short: AtomicUsize,
    started: Instant,
}

/// A worker to look at, live or lately ended.
#[derive(Debug, Clone)]
pub struct Portrait {
    pub worker: Snapshot,
    pub history: Vec<Transition<WorkerState>>,
    pub samples: Vec<Sample>,
    /// How it ended, if it has.
    pub certificate: Option<Arc<Certificate>>,
}

impl Portrait {
    fn of(worker: &PoolWorker, certificate: Option<Arc<Certificate>>) -> Self {
        Self { worker: worker.snapshot(), history: worker.history(), samples: worker.samples(), certificate }
    }
}

/// A query as the client sent it, its kind not yet chosen.
#[derive(Debug)]
pub struct Request {
    pub id: Option<QueryId>,
    pub kind: Option<String>,
    pub spec: QuerySpec,
    /// What is left of the client's own deadline.
    pub deadline: Option<Duration>,
    /// Cancel it once nobody has read its events for this long.
    pub abandon_after: Option<Duration>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Accepted {
    pub id: QueryId,
    pub kind: Arc<str>,
    pub submitted: Submitted,
}

#[derive(Debug, Error)]
pub enum RequestError {
    #[error("the server is {0} and takes no more queries")]
    NotAdmitting(PoolLifecycle),
    #[error("workers of kind {kind} do not start, so its queries fail at once; {reason}")]
    CircuitOpen { kind: Arc<str>, reason: String },
    #[error(transparent)]
    Unroutable(#[from] Unroutable),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// What a pool is built from.
#[derive(Debug)]
pub struct Parts {
    pub config: Config,
    pub broker: Arc<dyn Broker>,
    pub metrics: Arc<Metrics>,
    /// Our own binary, which sets worker processes up.
    pub launcher: PathBuf,
    /// What every worker inherits of the server's environment, by kind.
    pub environments: Vec<Vec<(String, String)>>,
}

impl Pool {
    /// Builds the pool and the supervisor that brings it to life when it is run.
    pub fn new(parts: Parts) -> io::Result<(Self, Supervisor)> {
        let Parts { config, broker, metrics, launcher, environments } = parts;
        let base = config.pool.socket_dir();
        let sockets = Arc::new(SocketDir::create(&base).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot make a directory for sockets in {} (pool.socket_dir): {error}", base.display()),
            )
        })?);
        let spawner = Spawner::new(launcher)?;
        let kinds: Vec<Kind> = config
            .kinds
            .iter()
            .zip(environments)
            .map(|(kind, environment)| Kind::new(kind.clone(), metrics.kind(&kind.name), environment))
            .collect();
        let inner = Arc::new(Inner {
            data: Arc::new(WorkerData::new(kinds.len())),
            kinds,
            config,
            broker,
            metrics,
            lifecycle: Machine::new(PoolLifecycle::Initializing),
            next_worker: AtomicU64::new(1),
            nudge: Notify::new(),
            deaths: Mutex::default(),
            cut_short: AtomicUsize::new(0),
            started: Instant::now(),
        });
        let supervisor = Supervisor::new(inner.clone(), spawner, sockets);
        Ok((Self { inner }, supervisor))
    }

    /// Accepts a query and gives it to a ready worker at once if there is one.
    pub async fn submit(&self, request: Request) -> Result<Accepted, RequestError> {
        let lifecycle = self.inner.lifecycle.get();
        if !health::is_admitting(lifecycle) {
            return Err(RequestError::NotAdmitting(lifecycle));
        }
        let kind = self.inner.route(request.kind.as_deref(), request.spec.query_type.as_deref())?;
        let id = request.id.unwrap_or_else(QueryId::generate);
        let name = self.inner.kinds[kind].config.name.clone();
        if let Some(reason) = self.inner.kinds[kind].circuit_reason() {
            return Err(RequestError::CircuitOpen { kind: name, reason });
        }
        let queue_timeout = request.spec.queue_timeout.or(self.inner.kinds[kind].config.queue_timeout);
        let spec = QuerySpec { kind: name.clone(), queue_timeout, ..request.spec };
        let query = NewQuery { id: id.clone(), spec, deadline: request.deadline, abandon_after: request.abandon_after };
        let submitted = self.inner.broker.submit(query).await?;
        if !submitted.existed {
            self.inner.dispatch(kind).await;
        }
        Ok(Accepted { id, kind: name, submitted })
    }

    #[must_use]
    pub fn broker(&self) -> &dyn Broker {
        &*self.inner.broker
    }

    /// Live workers in order of id, those of one kind if it is named.
    #[must_use]
    pub fn workers(&self, kind: Option<&str>) -> Vec<Snapshot> {
        let workers = match kind {
            Some(kind) => self.inner.data.all_of_kind(kind),
            None => self.inner.data.snapshot(),
        };
        workers.iter().map(|worker| worker.snapshot()).collect()
    }

    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<Portrait> {
        if let Some(worker) = self.inner.data.get(id) {
            return Some(Portrait::of(&worker, None));
        }
        self.inner.deaths.lock().iter().find(|death| death.worker.id == id).cloned()
    }

    #[must_use]
    pub fn kind_names(&self) -> Vec<Arc<str>> {
        self.inner.kinds.iter().map(|kind| kind.config.name.clone()).collect()
    }

    /// Brings the gauges up to date and writes all metrics out.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let metrics = &self.inner.metrics;
        for kind in &self.inner.kinds {
            let workers = self.inner.data.all_of_kind(&kind.config.name);
            let states: Vec<WorkerState> = workers.iter().map(|worker| worker.state()).collect();
            metrics.set_workers(&kind.config.name, &states);
        }
        metrics.set_queries(&self.inner.broker.counts());
        metrics.render()
    }
}

impl Inner {
    fn next_worker_id(&self) -> WorkerId {
        WorkerId(self.next_worker.fetch_add(1, Relaxed))
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.data.count(), self.config.pool.max_workers.get())
    }

    fn kind_of(&self, worker: &PoolWorker) -> usize {
        self.kinds
            .iter()
            .position(|kind| kind.config.name == worker.kind.name)
            .expect("a worker's kind is one of the pool's")
    }

    fn remember(&self, death: Portrait) {
        let mut deaths = self.deaths.lock();
        if deaths.len() == REMEMBERED_DEATHS {
            deaths.pop_front();
        }
        deaths.push_back(death);
    }
}
