//! Position of a query in its kind's queue, kept in the query itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Position of a query. Lower ranks are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum QueuePosition {
    None,
    Queued {
        rank: u64,
    },
    /// The owner runs as many queries as it may.
    Throttled {
        rank: u64,
    },
}

/// A [`QueuePosition`] in one word. It is read and written under the queue's lock only, so relaxed order suffices; it is atomic
/// because queries are shared.
#[derive(Debug, Default)]
pub(in super::super) struct AtomicQueuePosition(AtomicU64);

const QUEUED: u64 = 1 << 63;
const THROTTLED: u64 = 1 << 62;

impl AtomicQueuePosition {
    pub(super) fn get(&self) -> QueuePosition {
        let word = self.0.load(Relaxed);
        let rank = word & !(QUEUED | THROTTLED);
        match (word & QUEUED != 0, word & THROTTLED != 0) {
            (true, _) => QueuePosition::Queued { rank },
            (false, true) => QueuePosition::Throttled { rank },
            (false, false) => QueuePosition::None,
        }
    }

    pub(super) fn set(&self, position: QueuePosition) {
        let word = match position {
            QueuePosition::None => 0,
            QueuePosition::Queued { rank } => QUEUED | rank,
            QueuePosition::Throttled { rank } => THROTTLED | rank,
        };
        self.0.store(word, Relaxed);
    }

    pub(super) fn is_queued(&self) -> bool {
        self.0.load(Relaxed) & QUEUED != 0
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_kept_as_it_was_set() {
        let position = AtomicQueuePosition::default();
        assert!(position.is_none());
        for rank in [0, 1, u64::from(u32::MAX) + (1 << 40)] {
            for value in [QueuePosition::Queued { rank }, QueuePosition::Throttled { rank }, QueuePosition::None] {
                position.set(value);
                assert_eq!(position.get(), value);
                assert_eq!(position.is_queued(), matches!(value, QueuePosition::Queued { .. }));
                assert_eq!(position.is_none(), value == QueuePosition::None);
            }
        }
    }
}
