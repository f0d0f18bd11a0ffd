//! The kinds of a pool: the table of them, and the state of each.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};

use crate::{config::KindConfig, metrics::KindMetrics};

use super::{
    affinity::{self, AffinityCache},
    circuit::StartFailures,
    events::EventBus,
    kind_scaling::KindScaling,
    ready_workers::ReadyWorkers,
};

/// All kinds that are or were configured. A kind keeps its slot while the server runs, so that a slot once known stays
/// valid; a kind that is no longer configured is marked as removed, and may come back.
#[derive(Debug, Default)]
pub(super) struct KindTable(RwLock<Vec<Arc<PoolKind>>>);

#[derive(Debug)]
pub(super) struct PoolKind {
    pub slot: usize,
    pub name: Arc<str>,
    settings: RwLock<Arc<KindSettings>>,
    pub metrics: Arc<KindMetrics>,
    pub events: Arc<EventBus>,
    pub start_failures: Mutex<StartFailures>,
    pub scaling: Mutex<KindScaling>,
    pub affinity: AffinityCache,
    pub ready: Arc<ReadyWorkers>,
    /// Capabilities that every worker of the kind has reported.
    reported_capabilities: RwLock<Vec<String>>,
    removed: AtomicBool,
    /// Reason why the next worker that ends a query is to make room for another one.
    yield_request: Mutex<Option<String>>,
}

/// Settings that the kind's next worker is started with.
#[derive(Debug)]
pub(super) struct KindSettings {
    pub config: Arc<KindConfig>,
    /// Variables passed on from the server's environment, and those that the kind adds.
    pub environment: Arc<[(String, String)]>,
}

impl KindTable {
    pub(super) fn get(&self, slot: usize) -> Arc<PoolKind> {
        self.0.read()[slot].clone()
    }

    /// The configured kinds, and removed ones that may have queries to finish.
    pub(super) fn all(&self) -> Vec<Arc<PoolKind>> {
        self.0.read().clone()
    }

    pub(super) fn configured(&self) -> Vec<Arc<PoolKind>> {
        self.0.read().iter().filter(|kind| !kind.is_removed()).cloned().collect()
    }

    /// The configured kind of this name, or, without a name, the only configured one.
    pub(super) fn single(&self, name: Option<&str>) -> Option<Arc<PoolKind>> {
        let kinds = self.0.read();
        let mut matching =
            kinds.iter().filter(|kind| !kind.is_removed() && name.is_none_or(|name| *kind.name == *name));
        matching.next().filter(|_| matching.next().is_none()).cloned()
    }

    /// The kind of this name, even if it was removed.
    pub(super) fn find(&self, name: &str) -> Option<Arc<PoolKind>> {
        self.0.read().iter().find(|kind| *kind.name == *name).cloned()
    }

    pub(super) fn add(&self, settings: KindSettings, metrics: Arc<KindMetrics>, events: Arc<EventBus>) {
        let mut kinds = self.0.write();
        let slot = kinds.len();
        kinds.push(Arc::new(PoolKind {
            slot,
            name: settings.config.name.clone(),
            settings: RwLock::new(Arc::new(settings)),
            metrics,
            events,
            start_failures: Mutex::default(),
            scaling: Mutex::default(),
            affinity: AffinityCache::default(),
            ready: Arc::default(),
            reported_capabilities: RwLock::default(),
            removed: AtomicBool::new(false),
            yield_request: Mutex::default(),
        }));
    }
}

impl PoolKind {
    pub(super) fn settings(&self) -> Arc<KindSettings> {
        self.settings.read().clone()
    }

    pub(super) fn config(&self) -> Arc<KindConfig> {
        self.settings.read().config.clone()
    }

    /// Puts a changed configuration in force.
    pub(super) fn reconfigure(&self, settings: KindSettings) {
        self.reset_start_failures();
        // Held over both changes: the sizing sees the new limits together with the new settings, or neither.
        let mut scaling = self.scaling.lock();
        scaling.apply_limits(settings.config.min, settings.config.max.get());
        *self.settings.write() = Arc::new(settings);
        drop(scaling);
        self.removed.store(false, Relaxed);
    }

    /// Marks the kind as no longer configured: it takes no new queries, and finishes those it has accepted.
    pub(super) fn remove(&self) {
        *self.scaling.lock() = KindScaling::default();
        self.removed.store(true, Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Keeps the capabilities that all workers have in common. `reported` is called under the lock, so that the last
    /// caller also writes last.
    pub(super) fn update_capabilities(&self, reported: impl FnOnce() -> Vec<Vec<String>>) {
        let mut capabilities = self.reported_capabilities.write();
        let reported = reported();
        let Some((first, others)) = reported.split_first() else { return };
        let common = first.iter().filter(|capability| others.iter().all(|other| other.contains(capability)));
        *capabilities = common.cloned().collect();
    }

    pub(super) fn is_capable_of(&self, wanted: &[Box<str>]) -> bool {
        let (config, reported) = (self.config(), self.reported_capabilities.read());
        let has = |wanted: &str| config.capabilities.iter().chain(reported.iter()).any(|known| known == wanted);
        wanted.iter().all(|capability| has(capability))
    }

    /// Capabilities that are configured, and those that all workers have reported; sorted.
    pub(super) fn capabilities(&self) -> Vec<String> {
        let mut all = self.config().capabilities.clone();
        all.extend(self.reported_capabilities.read().iter().cloned());
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn is_strict(&self) -> bool {
        affinity::is_strict(&self.config())
    }

    /// Asks the next worker that ends a query to make room, though more queries may wait for it.
    pub(super) fn request_yield(&self, reason: String) {
        *self.yield_request.lock() = Some(reason);
    }

    pub(super) fn take_yield_request(&self) -> Option<String> {
        self.yield_request.lock().take()
    }
}
