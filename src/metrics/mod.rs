//! Every metric there is: its name, its help, its labels. Other modules get resolved counters with verbs for names.

mod family;
mod kind;
mod label;
mod page;
mod process;
mod query;
mod refusal;
mod rpc;
mod table;

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::{Encoder, Gauge, IntCounter, Registry, TextEncoder};

use crate::state::QueryState;

pub use kind::{KindMetrics, KindReading};
pub use page::{page, series};
pub use query::{KindQueryMetrics, QueryMetrics};
pub use refusal::RefusalReason;
pub use rpc::{CODES, Connections, MethodMetrics, OpenConnection};

use family::Families;
use label::{Label, OTHER};
use process::ProcessMetrics;
use table::Id;

/// All metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
    pub query: Arc<QueryMetrics>,
    refusals: [IntCounter; RefusalReason::ALL.len()],
    pool_workers_limit: Gauge,
    memory_budget: Gauge,
    queue_limit: Gauge,
    process: ProcessMetrics,
}

/// The bounds of the whole pool, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    pub workers: usize,
    pub memory: Option<u64>,
    pub queries: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let families = Arc::new(Families::new(&registry));
        families.begin(None, &[]);
        families.gauge(Id::BuildInfo, &[env!("CARGO_PKG_VERSION")]).set(1.0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        families.gauge(Id::StartTime, &[]).set(since_1970.as_secs_f64());
        let gauge = |id| families.gauge(id, &[]);
        Self {
            query: Arc::new(QueryMetrics::new(families.clone())),
            refusals: RefusalReason::ALL.map(|refusal| families.counter(Id::SubmitRefused, &[refusal.name()])),
            pool_workers_limit: gauge(Id::PoolWorkersLimit),
            memory_budget: gauge(Id::MemoryBudget),
            queue_limit: gauge(Id::QueueLimit),
            process: ProcessMetrics::new(&families),
            registry,
            families,
        }
    }

    /// Resolves the series of one kind, so that they stand at zero from the start.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Arc<KindMetrics> {
        // The queries' part begins all series of the kind.
        let _ = self.query.kind(kind);
        Arc::new(KindMetrics::new(&self.families, kind))
    }

    /// Counts a kind's results of these types by themselves from now on; all others share a series.
    pub fn know_types(&self, kind: &str, types: &[&str]) {
        self.query.know_types(kind, types);
    }

    /// Resolves the series of each method, and last of those that do not exist.
    #[must_use]
    pub fn methods(&self, names: &[String]) -> (Vec<Arc<MethodMetrics>>, Arc<MethodMetrics>) {
        let all: Vec<&str> = names.iter().map(String::as_str).chain([OTHER]).collect();
        self.families.begin(Some((Label::Method, &all)), &[]);
        let known = names.iter().map(|name| MethodMetrics::new(&self.families, name));
        (known.collect(), MethodMetrics::new(&self.families, OTHER))
    }

    #[must_use]
    pub fn connections(&self) -> Connections {
        Connections::new(&self.families)
    }

    /// A query was not accepted.
    pub fn refused(&self, refusal: RefusalReason) {
        self.refusals[refusal as usize].inc();
    }

    pub fn set_limits(&self, limits: PoolLimits) {
        self.pool_workers_limit.set(float(limits.workers as u64));
        self.memory_budget.set(float(limits.memory.unwrap_or(0)));
        self.queue_limit.set(float(limits.queries as u64));
    }

    /// Sets how many queries of which kind are in which state.
    pub fn set_queries(&self, counts: &[(Arc<str>, QueryState, usize)]) {
        for (kind, state, count) in counts {
            let count = float(*count as u64);
            self.families.gauge(Id::Queries, &[&**kind, state.name()]).set(count);
            if *state == QueryState::Pending {
                self.families.gauge(Id::QueueDepth, &[&**kind]).set(count);
            }
        }
    }

    /// The text that Prometheus scrapes.
    #[must_use]
    pub fn render(&self) -> String {
        self.process.look();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a registered metric can be written");
        String::from_utf8(text).expect("the text format is UTF-8")
    }
}

/// Gauges are fractions; what they count is far from where those get imprecise.
#[expect(clippy::cast_precision_loss, reason = "nine petabytes, or as many workers, are beyond any machine")]
fn float(number: u64) -> f64 {
    number as f64
}
