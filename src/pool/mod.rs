//! The pool: keeps workers warm, gives each waiting query to one that can run it, and replaces workers that end.

mod admission;
mod affinity;
#[doc(hidden)]
pub mod bench_support;
mod circuit;
mod context;
mod dead_letters;
mod dispatcher;
mod drain;
mod events;
mod gauges;
mod health;
mod host;
mod kind_scaling;
mod kinds;
mod memory;
#[cfg(test)]
#[cfg(feature = "model-check")]
mod model_check;
mod operations;
mod plan;
mod ready_queue;
mod ready_workers;
mod recovery;
mod registry;
mod reload;
mod routing;
mod scaling;
mod sizing;
mod submit;
mod supervisor;
mod watchdog;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use crate::{
    broker::Broker,
    config::{Config, KindConfig},
    metrics::Metrics,
    model::WorkerId,
    worker::{RuntimeDir, Spawner, WorkerSnapshot},
};

pub use dead_letters::{DeadLetterSelection, RequeueError};
pub use drain::DrainReport;
pub use events::{EventBus, EventSubscription, POOL_EVENT_NAMES, PoolChange, PoolEvent, PoolEventBody};
pub use health::{KindHealth, PoolHealth};
pub use operations::{AdminError, Operations, ScaleOutcome, ScaleTarget};
pub use registry::WorkerDetails;
pub use reload::{ReloadOutcome, Reloader};
pub use routing::RoutingError;
pub use submit::{Accepted, QueryRequest, RequestError};
pub use supervisor::{StopSignals, Supervisor};

use admission::Admission;
use context::PoolContext;
use dispatcher::Dispatcher;
use gauges::register_query_types;
use memory::MemoryBudget;
use watchdog::Watchdog;

/// A cheap handle on the pool.
#[derive(Debug, Clone)]
pub struct Pool {
    parts: Arc<PoolParts>,
}

#[derive(Debug)]
struct PoolParts {
    context: Arc<PoolContext>,
    admission: Arc<Admission>,
    dispatcher: Arc<Dispatcher>,
    operations: Operations,
    memory: Arc<MemoryBudget>,
    watchdog: Arc<Watchdog>,
    started: Instant,
}

/// Parameters of `Pool::new`.
#[derive(Debug)]
pub struct PoolParams {
    pub config: Config,
    pub broker: Broker,
    pub metrics: Arc<Metrics>,
    /// Our own binary, which also is the launcher of worker processes.
    pub launcher: PathBuf,
    /// Computes the environment of a kind's workers.
    pub environment: fn(&KindConfig) -> Vec<(String, String)>,
    /// Reads the configuration again; `None` if there is no file.
    pub reloader: Option<Reloader>,
}

impl Pool {
    /// Builds the pool, and the supervisor that must run for it to have workers.
    pub fn new(params: PoolParams) -> io::Result<(Self, Supervisor)> {
        let base = params.config.pool.socket_dir();
        let runtime_dir = Arc::new(RuntimeDir::create(&base).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot make a directory for sockets in {} (pool.socket_dir): {error}", base.display()),
            )
        })?);
        let spawner = Spawner::new(params.launcher.clone())?;
        let parts = Arc::new(PoolParts::new(params));
        let supervisor = Supervisor::new(&parts, spawner, runtime_dir);
        Ok((Self { parts }, supervisor))
    }

    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.parts.context.broker
    }

    #[must_use]
    pub fn operations(&self) -> &Operations {
        &self.parts.operations
    }

    /// Subscribes to the events of the pool from now on.
    #[must_use]
    pub fn subscribe(&self) -> EventSubscription {
        self.parts.context.events.subscribe()
    }

    /// Live workers in order of id, those of one kind if it is named.
    #[must_use]
    pub fn workers(&self, kind: Option<&str>) -> Vec<WorkerSnapshot> {
        let mut workers = self.parts.context.registry.snapshot();
        workers.retain(|worker| kind.is_none_or(|kind| *worker.kind.name == *kind));
        workers.iter().map(|worker| worker.snapshot()).collect()
    }

    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<WorkerDetails> {
        self.parts.context.registry.details(id)
    }

    /// Reason why only a restart of the server helps, if it is so.
    #[must_use]
    pub fn stuck_reason(&self) -> Option<String> {
        self.parts.watchdog.stuck_reason(Instant::now())
    }

    #[must_use]
    pub fn kind_names(&self) -> Vec<Arc<str>> {
        self.parts.context.kinds.configured().iter().map(|kind| kind.name.clone()).collect()
    }
}

impl PoolParts {
    fn new(params: PoolParams) -> Self {
        let PoolParams { config, broker, metrics, environment, reloader, .. } = params;
        register_query_types(&metrics, &config);
        let kinds = config.kinds.clone();
        let context = Arc::new(PoolContext::new(config, broker, metrics));
        let admission = Arc::new(Admission::new(context.events.clone()));
        let cut_short = AtomicUsize::new(0);
        let dispatcher = Arc::new(Dispatcher { context: context.clone(), admission: admission.clone(), cut_short });
        let operations = Operations {
            context: context.clone(),
            admission: admission.clone(),
            dispatcher: dispatcher.clone(),
            environment,
            reloader,
            reloading: tokio::sync::Mutex::default(),
        };
        for kind in &kinds {
            operations.add_kind(kind);
        }
        let (memory, watchdog) = (Arc::default(), Arc::new(Watchdog::new(Instant::now())));
        Self { context, admission, dispatcher, operations, memory, watchdog, started: Instant::now() }
    }
}
