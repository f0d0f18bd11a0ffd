//! The state that all parts of the pool share.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tracing::{debug, info};

use crate::{broker::Broker, config::Config, metrics::Metrics, worker::PoolWorker};

use super::{
    events::{EventBus, PoolEventBody},
    kinds::{KindTable, PoolKind},
    registry::Registry,
};

#[derive(Debug)]
pub(super) struct PoolContext {
    /// The configuration in force; a reload replaces it.
    config: RwLock<Arc<Config>>,
    pub broker: Broker,
    pub metrics: Arc<Metrics>,
    pub events: Arc<EventBus>,
    pub kinds: KindTable,
    pub registry: Registry,
    /// Wakes the supervisor: a query waits and no worker is ready, or the pool is to be resized.
    pub supervisor_wake: Notify,
}

impl PoolContext {
    pub(super) fn new(config: Config, broker: Broker, metrics: Arc<Metrics>) -> Self {
        Self {
            config: RwLock::new(Arc::new(config)),
            broker,
            metrics,
            events: Arc::default(),
            kinds: KindTable::default(),
            registry: Registry::default(),
            supervisor_wake: Notify::new(),
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }

    pub(super) fn set_config(&self, config: Config) {
        *self.config.write() = Arc::new(config);
    }

    pub(super) fn wake_supervisor(&self) {
        self.supervisor_wake.notify_one();
    }

    /// All kinds with their workers, from one snapshot of the registry.
    pub(super) fn workers_by_kind(&self) -> Vec<(Arc<PoolKind>, Vec<Arc<PoolWorker>>)> {
        // Taken first: a worker's kind is in the table before the worker is in the registry.
        let workers = self.registry.snapshot();
        let mut all: Vec<_> = self.kinds.all().into_iter().map(|kind| (kind, Vec::new())).collect();
        for worker in workers {
            all[worker.slot].1.push(worker);
        }
        all
    }

    /// Reason why queries of the kind fail at once: its circuit is open and it has no healthy worker.
    pub(super) fn fail_fast_reason(&self, kind: &PoolKind) -> Option<String> {
        let reason = kind.circuit_open_reason()?;
        let workers = self.registry.all_of_kind(kind.slot);
        (!workers.iter().any(|worker| worker.state().is_healthy())).then_some(reason)
    }

    /// Recomputes the capabilities of a kind from those that its healthy workers have reported.
    pub(super) fn update_capabilities(&self, kind: &PoolKind) {
        kind.update_capabilities(|| {
            let workers = self.registry.all_of_kind(kind.slot);
            let healthy = workers.iter().filter(|worker| worker.state().is_healthy());
            healthy.map(|worker| worker.snapshot().ready_info.capabilities).collect()
        });
    }

    /// Logs, counts and publishes the eviction of a worker.
    pub(super) fn record_eviction(&self, kind: &PoolKind, worker: &PoolWorker, reason: String) {
        let eviction = self.config().pool.eviction;
        let strategy = eviction.name();
        info!(worker = worker.id.0, kind = %kind.name, strategy, reason, "worker evicted");
        kind.metrics.record_eviction(eviction);
        self.events.emit(Some(&kind.name), || PoolEventBody::Evicted { worker: worker.id, strategy, reason });
        self.wake_supervisor();
    }

    /// Logs, counts and publishes a change of the number of a kind's workers.
    pub(super) fn record_scaling(&self, kind: &PoolKind, from: usize, to: usize, reason: String) {
        if from == to {
            debug!(kind = %kind.name, reason, "no worker could be started");
            return;
        }
        info!(kind = %kind.name, from, to, reason, "scaling");
        kind.metrics.record_scaling(from, to);
        self.events.emit(Some(&kind.name), || PoolEventBody::Scaled { from, to, reason });
    }
}
