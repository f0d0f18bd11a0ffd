//! The gauges of a scrape: computed on request, in one pass over the workers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    config::Config,
    metrics::{KindSnapshot, Metrics, PoolLimits},
    state::{State, WorkerState},
    worker::PoolWorker,
};

use super::{Pool, PoolParts, kinds::PoolKind};

impl Pool {
    /// Updates the gauges, and renders all metrics.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let PoolParts { context, admission, .. } = &*self.parts;
        let config = context.config();
        context.metrics.set_limits(PoolLimits {
            workers: config.pool.max_workers.get(),
            memory: config.pool.memory_budget,
            queries: config.queue.max_queries.get(),
        });
        let (in_service, now) = (admission.out_of_service_reason().is_none(), Instant::now());
        for (kind, workers) in context.workers_by_kind() {
            let serving = in_service && !kind.is_removed() && self.unavailable_reason(&kind, &workers).is_none();
            let oldest = context.broker.oldest_waiting(&kind.name);
            let oldest = oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            kind.metrics.set_gauges(&KindSnapshot { serving, oldest, ..reading(&kind, &workers, now) });
        }
        context.metrics.set_queries(&context.broker.state_counts());
        context.metrics.render()
    }
}

fn reading(kind: &PoolKind, workers: &[Arc<PoolWorker>], now: Instant) -> KindSnapshot {
    let config = kind.config();
    let (min, max) = if kind.is_removed() { (0, 0) } else { (config.min, config.max.get()) };
    let mut reading = KindSnapshot {
        workers: [0; WorkerState::ALL.len()],
        min,
        max,
        silence: Duration::ZERO,
        memory: 0,
        reserved: 0,
        circuit: kind.circuit(),
        serving: false,
        oldest: Duration::ZERO,
    };
    for worker in workers.iter().map(|worker| worker.stats(now)) {
        reading.workers[worker.state.index()] += 1;
        reading.memory += worker.rss.unwrap_or(0);
        reading.reserved += worker.reserved;
        if worker.state.is_live() {
            reading.silence = reading.silence.max(worker.silence);
        }
    }
    reading
}

/// Has the results of each configured query type counted under its own label.
pub(super) fn register_query_types(metrics: &Metrics, config: &Config) {
    for kind in &config.kinds {
        let listed_elsewhere =
            |name: &String| config.kinds.iter().any(|other| other.name != kind.name && other.types.contains(name));
        let recovered = config.recovery.types.keys().filter(|name| !listed_elsewhere(name));
        let types: Vec<&str> = kind.types.iter().chain(recovered).map(String::as_str).collect();
        metrics.add_types(&kind.name, &types);
    }
}
