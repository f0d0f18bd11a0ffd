//! Workers without a process, for unit tests.

use std::{sync::Arc, time::Instant};

use super::{PoolWorker, WorkerSpec};
use crate::{
    config::{Config, ConfigSource, KindConfig, Overrides},
    metrics::Metrics,
    model::WorkerId,
    state::WorkerState,
};

/// A kind with these settings.
pub(super) fn kind(settings: &str) -> KindConfig {
    let text = format!("[kinds.k]\ncommand = [\"w\"]\n{settings}\n");
    let source = ConfigSource::Text { name: "test".to_owned(), text, base_dir: "/".into() };
    Config::load(source, [], &Overrides::default()).expect("a sound config").kinds.remove(0)
}

impl PoolWorker {
    /// A worker of the first kind, ready for its first query.
    pub(crate) fn for_test(id: u64) -> Arc<Self> {
        Self::for_test_with(id, "")
    }

    pub(super) fn for_test_with(id: u64, settings: &str) -> Arc<Self> {
        let kind = Arc::new(kind(settings));
        let metrics = Metrics::new().kind(&kind.name);
        let spec = WorkerSpec { id: WorkerId(id), slot: 0, kind, key: None, metrics, observer: Arc::new(()) };
        let worker = Arc::new(Self::new(spec));
        assert!(worker.step(WorkerState::Spawning, WorkerState::Loading, "connected"));
        assert!(worker.step(WorkerState::Loading, WorkerState::Ready, "ready"));
        worker
    }

    /// Runs a query on a reserved worker.
    pub(crate) fn serve_for_test(&self) {
        self.lock.lock().dispatched += 1;
        assert!(self.finish_query(Instant::now()), "it may take another query");
    }
}
