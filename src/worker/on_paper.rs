//! Workers without a process, for tests of whoever keeps them.

use std::sync::Arc;

use super::{Birth, PoolWorker};
use crate::{
    config::{Config, Overrides, Source},
    metrics::Metrics,
    model::WorkerId,
    state::WorkerState,
};

impl PoolWorker {
    /// One of the first kind, ready for its first query.
    pub(crate) fn on_paper(id: u64) -> Arc<Self> {
        let text = "[kinds.k]\ncommand = [\"w\"]\n".to_owned();
        let source = Source::Text { name: "test".to_owned(), text, base_dir: "/".into() };
        let kind = Config::load(source, [], &Overrides::default()).expect("a sound config").kinds.remove(0);
        let worker = Arc::new(Self::new(Birth {
            id: WorkerId(id),
            slot: 0,
            metrics: Metrics::new().kind(&kind.name),
            kind: Arc::new(kind),
            key: None,
            observer: Arc::new(()),
        }));
        worker.step(WorkerState::Spawning, WorkerState::Loading, "connected").expect("it has just begun");
        worker.step(WorkerState::Loading, WorkerState::Ready, "ready").expect("it is loading");
        worker
    }

    /// It was reserved and has run a query.
    pub(crate) fn has_run_a_query(&self) {
        self.lock.lock().dispatched += 1;
        assert!(self.finish_task(std::time::Instant::now()), "it may take another query");
    }
}
