//! What metrics tell of how things stand: worked out when someone looks, in one pass over the workers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    config::Config,
    metrics::{KindSnapshot, PoolLimits},
    state::{State, WorkerState},
    worker::PoolWorker,
};

use super::{Inner, Pool, kinds::Kind};

impl Pool {
    /// Brings the gauges up to date and writes all metrics out.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let inner = &self.inner;
        let config = inner.config();
        inner.metrics.set_limits(PoolLimits {
            workers: config.pool.max_workers.get(),
            memory: config.pool.memory_budget,
            queries: config.queue.max_queries.get(),
        });
        let (closed, now) = (inner.out_of_service().is_some(), Instant::now());
        for (kind, workers) in inner.workers_by_kind() {
            kind.metrics.set_gauges(&inner.reading(&kind, &workers, closed, now));
        }
        inner.metrics.set_queries(&inner.broker.state_counts());
        inner.metrics.render()
    }
}

impl Inner {
    /// All kinds with their workers, from one look at the registry.
    pub(super) fn workers_by_kind(&self) -> Vec<(Arc<Kind>, Vec<Arc<PoolWorker>>)> {
        let workers = self.data.snapshot();
        // A worker's kind is in the table before it is in the registry.
        let mut all: Vec<_> = self.kinds.all().into_iter().map(|kind| (kind, Vec::new())).collect();
        for worker in workers {
            all[worker.slot].1.push(worker);
        }
        all
    }

    fn reading(&self, kind: &Kind, workers: &[Arc<PoolWorker>], closed: bool, now: Instant) -> KindSnapshot {
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
            serving: !closed && !kind.is_removed() && self.kind_reason(kind, workers).is_none(),
            oldest: self
                .broker
                .oldest_waiting(&kind.name)
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
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

    /// Has the results of the types that are configured counted by themselves.
    pub(super) fn know_types(&self, config: &Config) {
        for kind in &config.kinds {
            let listed_elsewhere =
                |name: &String| config.kinds.iter().any(|other| other.name != kind.name && other.types.contains(name));
            let recovered = config.recovery.types.keys().filter(|name| !listed_elsewhere(name));
            let types: Vec<&str> = kind.types.iter().chain(recovered).map(String::as_str).collect();
            self.metrics.add_types(&kind.name, &types);
        }
    }
}
