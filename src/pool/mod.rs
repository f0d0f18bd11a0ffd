//! The pool: keeps workers warm, gives each waiting query to one that can run it, replaces those that end.

mod admin;
mod affinity;
#[doc(hidden)]
pub mod bench_support;
mod circuit;
mod dead_letters;
mod dispatch;
mod drain;
mod events;
mod gauges;
mod health;
mod kinds;
mod memory;
#[cfg(test)]
#[cfg(feature = "model-check")]
mod model_check;
mod plan;
mod ready_queue;
mod recovery;
mod reload;
mod routing;
mod scaling;
mod submit;
mod supervisor;
mod watchdog;
mod worker_data;

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{
    broker::Broker,
    config::{Config, KindConfig},
    metrics::{Metrics, RefusalReason},
    model::{DeathCertificate, WorkerId},
    state::{Occupancy, PoolLifecycle, StateMachine, Transition, WorkerState},
    worker::{PoolWorker, SocketDir, Spawner, UsageSample, WorkerSnapshot},
};

pub use admin::{AdminError, ScaleTo, Scaled};
pub use dead_letters::{RequeueError, Selection};
pub use drain::Drained;
pub use events::{EventBus, EventSubscription, POOL_EVENT_NAMES, PoolChange, PoolEvent, PoolEventBody};
pub use health::{Health, KindHealth};
pub use reload::{Reload, Reloader};
pub use routing::Unroutable;
pub use submit::{Accepted, Request, RequestError};
pub use supervisor::{StopSignals, Supervisor};

use kinds::{Kinds, Settings};
use memory::MemoryBudget;
use watchdog::Watchdog;
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
    /// What is in force; a reload puts another in its place.
    config: RwLock<Arc<Config>>,
    reloader: Option<Reloader>,
    /// Only one reload at a time.
    reloading: tokio::sync::Mutex<()>,
    environment: fn(&KindConfig) -> Vec<(String, String)>,
    kinds: Kinds,
    data: Arc<WorkerData>,
    memory: Arc<MemoryBudget>,
    broker: Broker,
    metrics: Arc<Metrics>,
    events: Arc<EventBus>,
    lifecycle: StateMachine<PoolLifecycle>,
    /// Why no new queries are taken though the server goes on, if someone said so.
    drained: Mutex<Option<String>>,
    /// Whether the server is about to stop: queries should go elsewhere, but those that come are still taken.
    leaving: AtomicBool,
    next_worker: AtomicU64,
    /// Wakes the supervisor: a query waits and no worker is ready, or the pool is to stop.
    nudge: Notify,
    deaths: Mutex<VecDeque<Portrait>>,
    /// Running queries that the server's stop ended.
    cut_short: AtomicUsize,
    watchdog: Watchdog,
    started: Instant,
}

/// A worker to look at, live or lately ended.
#[derive(Debug, Clone)]
pub struct Portrait {
    pub worker: WorkerSnapshot,
    pub history: Vec<Transition<WorkerState>>,
    pub samples: Vec<UsageSample>,
    /// How it ended, if it has.
    pub certificate: Option<Arc<DeathCertificate>>,
}

impl Portrait {
    fn of(worker: &PoolWorker, certificate: Option<Arc<DeathCertificate>>) -> Self {
        Self { worker: worker.snapshot(), history: worker.history(), samples: worker.samples(), certificate }
    }
}

/// What a pool is built from.
#[derive(Debug)]
pub struct Parts {
    pub config: Config,
    pub broker: Broker,
    pub metrics: Arc<Metrics>,
    /// Our own binary, which sets worker processes up.
    pub launcher: PathBuf,
    /// What a worker of a kind gets of the server's environment, and what the kind adds.
    pub environment: fn(&KindConfig) -> Vec<(String, String)>,
    /// Reads the configuration again; `None` if there is no file.
    pub reloader: Option<Reloader>,
}

impl Pool {
    /// Builds the pool and the supervisor that brings it to life when it is run.
    pub fn new(parts: Parts) -> io::Result<(Self, Supervisor)> {
        let base = parts.config.pool.socket_dir();
        let sockets = Arc::new(SocketDir::create(&base).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot make a directory for sockets in {} (pool.socket_dir): {error}", base.display()),
            )
        })?);
        let spawner = Spawner::new(parts.launcher.clone())?;
        let inner = Arc::new(Inner::new(parts));
        let supervisor = Supervisor::new(inner.clone(), spawner, sockets);
        Ok((Self { inner }, supervisor))
    }

    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.inner.broker
    }

    /// Live workers in order of id, those of one kind if it is named.
    #[must_use]
    pub fn workers(&self, kind: Option<&str>) -> Vec<WorkerSnapshot> {
        let mut workers = self.inner.data.snapshot();
        workers.retain(|worker| kind.is_none_or(|kind| *worker.kind.name == *kind));
        workers.iter().map(|worker| worker.snapshot()).collect()
    }

    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<Portrait> {
        if let Some(worker) = self.inner.data.get(id) {
            return Some(Portrait::of(&worker, None));
        }
        self.inner.deaths.lock().iter().find(|death| death.worker.id == id).cloned()
    }

    /// Why the server should be restarted, if nothing else helps.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        self.inner.watchdog.alarm(Instant::now())
    }

    /// Takes note of a query that made no sense, and so never came here.
    pub fn refused_as_invalid(&self) {
        self.inner.metrics.record_refusal(RefusalReason::Invalid);
    }

    #[must_use]
    pub fn kind_names(&self) -> Vec<Arc<str>> {
        self.inner.kinds.configured().iter().map(|kind| kind.name.clone()).collect()
    }
}

impl Inner {
    fn new(parts: Parts) -> Self {
        let inner = Self {
            config: RwLock::new(Arc::new(parts.config.clone())),
            reloader: parts.reloader,
            reloading: tokio::sync::Mutex::default(),
            environment: parts.environment,
            kinds: Kinds::default(),
            data: Arc::default(),
            memory: Arc::default(),
            broker: parts.broker,
            metrics: parts.metrics,
            events: Arc::default(),
            lifecycle: StateMachine::new(PoolLifecycle::Initializing),
            drained: Mutex::default(),
            leaving: AtomicBool::new(false),
            next_worker: AtomicU64::new(1),
            nudge: Notify::new(),
            deaths: Mutex::default(),
            cut_short: AtomicUsize::new(0),
            watchdog: Watchdog::new(Instant::now()),
            started: Instant::now(),
        };
        inner.know_types(&parts.config);
        for kind in parts.config.kinds {
            inner.add_kind(kind);
        }
        inner
    }

    fn add_kind(&self, config: KindConfig) {
        let metrics = self.metrics.kind(&config.name);
        self.data.add_kind();
        self.kinds.add(self.settings(config), metrics, self.events.clone());
    }

    fn settings(&self, config: KindConfig) -> Settings {
        Settings { environment: (self.environment)(&config).into(), config: Arc::new(config) }
    }

    fn next_worker_id(&self) -> WorkerId {
        WorkerId(self.next_worker.fetch_add(1, Relaxed))
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.data.count(), self.config().pool.max_workers.get())
    }

    fn remember_death(&self, death: Portrait) {
        let mut deaths = self.deaths.lock();
        if deaths.len() == REMEMBERED_DEATHS {
            deaths.pop_front();
        }
        deaths.push_back(death);
    }
}
