//! Lanes of queries, and the cache of the worker that served each lane last.
//!
//! A lane is what a query has in common with others that may have to reach the same worker: its key, or else its session.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    config::{Affinity, KindConfig},
    model::QuerySpec,
    worker::PoolWorker,
};

const KEY_PREFIX: &str = "key ";
const SESSION_PREFIX: &str = "session ";

/// Keys, and sessions, remembered for each kind; the least recently used one is dropped first.
const CACHE_MAX_LANES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// True if queries of one lane must reach the same worker.
pub(super) fn is_strict(config: &KindConfig) -> bool {
    config.keyed || config.affinity == Affinity::Strict
}

/// True if queries of one lane must, or should, reach the same worker.
pub(super) fn has_affinity(config: &KindConfig) -> bool {
    config.keyed || config.affinity != Affinity::Off
}

/// The lane of a query. It does not depend on the kind's configuration, which may change while the query waits.
pub(super) fn lane_of(spec: &QuerySpec) -> Option<Arc<str>> {
    let by_key = spec.key.as_deref().map(key_lane);
    by_key.or_else(|| spec.session_id().map(session_lane))
}

pub(super) fn key_lane(key: &str) -> Arc<str> {
    format!("{KEY_PREFIX}{key}").into()
}

pub(super) fn session_lane(session_id: &str) -> Arc<str> {
    format!("{SESSION_PREFIX}{session_id}").into()
}

/// The key of a lane; `None` for the lane of a session.
pub(super) fn lane_key(lane: &str) -> Option<&str> {
    lane.strip_prefix(KEY_PREFIX)
}

type LaneCache = Mutex<LruCache<Arc<str>, Weak<PoolWorker>>>;

/// The worker that served each lane last. Keys and sessions are kept apart, because workers choose session ids and must
/// not be able to push out the keys.
#[derive(Debug)]
pub(super) struct AffinityCache {
    keys: LaneCache,
    sessions: LaneCache,
}

impl Default for AffinityCache {
    fn default() -> Self {
        let lanes = || Mutex::new(LruCache::new(CACHE_MAX_LANES));
        Self { keys: lanes(), sessions: lanes() }
    }
}

impl AffinityCache {
    fn lanes(&self, lane: &str) -> &LaneCache {
        if lane_key(lane).is_some() { &self.keys } else { &self.sessions }
    }

    /// The worker that served the lane last, if it is still alive.
    pub(super) fn get(&self, lane: &str) -> Option<Arc<PoolWorker>> {
        self.lanes(lane).lock().get(lane)?.upgrade()
    }

    /// Returns the lane that was dropped for this one, with its worker.
    pub(super) fn insert(&self, lane: &Arc<str>, worker: &Arc<PoolWorker>) -> Option<(Arc<str>, Arc<PoolWorker>)> {
        let (dropped, last) = self.lanes(lane).lock().push(lane.clone(), Arc::downgrade(worker))?;
        // `push` also returns the old entry of the same lane.
        (dropped != *lane).then(|| last.upgrade().map(|last| (dropped, last)))?
    }

    /// Drops all lanes of a worker.
    pub(super) fn remove_worker(&self, worker: &Arc<PoolWorker>) {
        let gone = Arc::downgrade(worker);
        for lanes in [&self.keys, &self.sessions] {
            let mut lanes = lanes.lock();
            let of_worker = lanes.iter().filter(|(_, last)| last.ptr_eq(&gone));
            for lane in of_worker.map(|(lane, _)| lane.clone()).collect::<Vec<_>>() {
                lanes.pop(&lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_do_not_push_out_keys() {
        let cache = AffinityCache::default();
        let worker = PoolWorker::for_test(1);
        assert!(cache.insert(&key_lane("a"), &worker).is_none());
        for session in 0..=CACHE_MAX_LANES.get() {
            cache.insert(&session_lane(&session.to_string()), &worker);
        }
        assert!(cache.get(&session_lane("0")).is_none());
        assert!(cache.get(&key_lane("a")).is_some());
        cache.remove_worker(&worker);
        assert!(cache.get(&key_lane("a")).is_none());
    }
}
