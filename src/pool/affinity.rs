//! Remembers which worker served a key or a session, so that the next query of it can reach the same one.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;

use crate::worker::PoolWorker;

use super::kinds::key_of;

/// How many keys and sessions of a kind are remembered; the one that was used longest ago goes first.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

type Seen = LruCache<Arc<str>, Weak<PoolWorker>>;

/// Keys and sessions apart: workers make sessions up as they like, and are not to push out the keys.
#[derive(Debug)]
pub(super) struct Whereabouts {
    keys: Mutex<Seen>,
    sessions: Mutex<Seen>,
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self { keys: Mutex::new(LruCache::new(REMEMBERED)), sessions: Mutex::new(LruCache::new(REMEMBERED)) }
    }
}

impl Whereabouts {
    fn of(&self, lane: &str) -> &Mutex<Seen> {
        if key_of(lane).is_some() { &self.keys } else { &self.sessions }
    }

    /// The worker that served it last, if it is still alive.
    pub(super) fn find(&self, lane: &str) -> Option<Arc<PoolWorker>> {
        self.of(lane).lock().get(lane)?.upgrade()
    }

    /// Returns what had to be forgotten for it, with its worker.
    pub(super) fn remember(&self, lane: &Arc<str>, worker: &Arc<PoolWorker>) -> Option<(Arc<str>, Arc<PoolWorker>)> {
        let (forgotten, last) = self.of(lane).lock().push(lane.clone(), Arc::downgrade(worker))?;
        // The same lane comes back if it was remembered before.
        (forgotten != *lane).then(|| last.upgrade().map(|last| (forgotten, last)))?
    }

    /// Everything that led to a worker leads nowhere now.
    pub(super) fn forget(&self, worker: &Arc<PoolWorker>) {
        let gone = Arc::downgrade(worker);
        for seen in [&self.keys, &self.sessions] {
            let mut seen = seen.lock();
            let lanes: Vec<Arc<str>> =
                seen.iter().filter(|(_, found)| found.ptr_eq(&gone)).map(|(lane, _)| lane.clone()).collect();
            for lane in lanes {
                seen.pop(&lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::kinds::{key_lane, session_lane};

    #[test]
    fn sessions_do_not_push_out_keys() {
        let whereabouts = Whereabouts::default();
        let worker = PoolWorker::for_test(1);
        assert!(whereabouts.remember(&key_lane("a"), &worker).is_none());
        for session in 0..=REMEMBERED.get() {
            whereabouts.remember(&session_lane(&session.to_string()), &worker);
        }
        assert!(whereabouts.find(&session_lane("0")).is_none());
        assert!(whereabouts.find(&key_lane("a")).is_some());
        whereabouts.forget(&worker);
        assert!(whereabouts.find(&key_lane("a")).is_none());
    }
}
