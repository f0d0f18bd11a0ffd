//! Every metric of the server. Other modules get handles with a method for each thing to record.

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

use prometheus::{Encoder, Registry, TextEncoder};

use crate::state::QueryState;

pub use kind::{KindMetrics, KindSnapshot};
pub use page::{page, series_count};
pub use query::{KindQueryMetrics, QueryMetrics};
pub use refusal::RefusalReason;
pub use rpc::{ConnectionGuard, ConnectionMetrics, GRPC_CODES, MethodMetrics};

use family::MetricFamilies;
use label::{MetricLabel, OTHER};
use table::MetricId;

/// All metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<MetricFamilies>,
    pub query: Arc<QueryMetrics>,
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
        let families = Arc::new(MetricFamilies::new(&registry));
        families.create_series(None, &[]);
        families.gauge(MetricId::BuildInfo, &[env!("CARGO_PKG_VERSION")]).set(1.0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        families.gauge(MetricId::StartTime, &[]).set(since_1970.as_secs_f64());
        Self { query: Arc::new(QueryMetrics::new(families.clone())), registry, families }
    }

    /// The metrics of one kind. Its series stand at zero from the first call on.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Arc<KindMetrics> {
        // This creates all series of the kind.
        let _ = self.query.kind(kind);
        Arc::new(KindMetrics::new(self.families.clone(), kind))
    }

    /// Adds series for a kind's results of these types; all other types share one.
    pub fn add_types(&self, kind: &str, types: &[&str]) {
        self.query.add_types(kind, types);
    }

    /// The metrics of each method, and those of methods that do not exist.
    #[must_use]
    pub fn methods(&self, names: &[String]) -> (Vec<Arc<MethodMetrics>>, Arc<MethodMetrics>) {
        let all: Vec<&str> = names.iter().map(String::as_str).chain([OTHER]).collect();
        self.families.create_series(Some((MetricLabel::Method, &all)), &[]);
        let known = names.iter().map(|name| MethodMetrics::new(&self.families, name));
        (known.collect(), MethodMetrics::new(&self.families, OTHER))
    }

    #[must_use]
    pub fn connections(&self) -> ConnectionMetrics {
        ConnectionMetrics::new(&self.families)
    }

    pub fn record_refusal(&self, reason: RefusalReason) {
        self.families.counter(MetricId::SubmitRefused, &[reason.name()]).inc();
    }

    pub fn set_limits(&self, limits: PoolLimits) {
        let set = |id, value| self.families.gauge(id, &[]).set(to_f64(value));
        set(MetricId::PoolWorkersLimit, limits.workers as u64);
        set(MetricId::MemoryBudget, limits.memory.unwrap_or(0));
        set(MetricId::QueueLimit, limits.queries as u64);
    }

    /// Sets the number of queries of each kind in each state.
    pub fn set_queries(&self, counts: &[(Arc<str>, QueryState, usize)]) {
        for (kind, state, count) in counts {
            let count = to_f64(*count as u64);
            self.families.gauge(MetricId::Queries, &[&**kind, state.name()]).set(count);
            if *state == QueryState::Pending {
                self.families.gauge(MetricId::QueueDepth, &[&**kind]).set(count);
            }
        }
    }

    /// The text that Prometheus scrapes.
    #[must_use]
    pub fn render(&self) -> String {
        process::update(&self.families);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a registered metric can be written");
        String::from_utf8(text).expect("the text format is UTF-8")
    }
}

/// Converts a count for a gauge.
#[expect(clippy::cast_precision_loss, reason = "counts and sizes stay below 2^53")]
fn to_f64(number: u64) -> f64 {
    number as f64
}
