//! Remembers which worker served a key or a session, so that the next query of it can reach the same one.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;

use crate::worker::PoolWorker;

/// How many keys and sessions of a kind are remembered; the one that was used longest ago goes first.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

#[derive(Debug)]
pub(super) struct Whereabouts {
    seen: Mutex<LruCache<Arc<str>, Weak<PoolWorker>>>,
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self { seen: Mutex::new(LruCache::new(REMEMBERED)) }
    }
}

impl Whereabouts {
    /// The worker that served it last, if it is still alive.
    pub(super) fn find(&self, lane: &str) -> Option<Arc<PoolWorker>> {
        self.seen.lock().get(lane)?.upgrade()
    }

    /// Returns what had to be forgotten for it, with its worker.
    pub(super) fn remember(&self, lane: &Arc<str>, worker: &Arc<PoolWorker>) -> Option<(Arc<str>, Arc<PoolWorker>)> {
        let (forgotten, last) = self.seen.lock().push(lane.clone(), Arc::downgrade(worker))?;
        // The same lane comes back if it was remembered before.
        (forgotten != *lane).then(|| last.upgrade().map(|last| (forgotten, last)))?
    }

    /// Everything that led to a worker leads nowhere now.
    pub(super) fn forget(&self, worker: &Arc<PoolWorker>) {
        let gone = Arc::downgrade(worker);
        let mut seen = self.seen.lock();
        let lanes: Vec<Arc<str>> =
            seen.iter().filter(|(_, found)| found.ptr_eq(&gone)).map(|(lane, _)| lane.clone()).collect();
        for lane in lanes {
            seen.pop(&lane);
        }
    }
}
