//! The memory budget: memory is reserved for a worker before it starts, and released when it is gone.

use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    reserved: Mutex<u64>,
}

/// Memory reserved for one worker, released when dropped: exactly once, however the worker ends.
#[derive(Debug)]
pub(super) struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryBudget {
    /// Reserves memory, unless that would exceed the limit.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64, limit: Option<u64>) -> Option<MemoryReservation> {
        let mut reserved = self.reserved.lock();
        let after = reserved.checked_add(bytes)?;
        if limit.is_some_and(|limit| after > limit && bytes > 0) {
            return None;
        }
        *reserved = after;
        Some(MemoryReservation { budget: self.clone(), bytes })
    }

    pub(super) fn reserved(&self) -> u64 {
        *self.reserved.lock()
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        *self.budget.reserved.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_memory_is_released_once_and_never_exceeds_the_limit() {
        let budget = Arc::new(MemoryBudget::default());
        let first = budget.reserve(60, Some(100)).unwrap();
        assert!(budget.reserve(60, Some(100)).is_none());
        let second = budget.reserve(40, Some(100)).unwrap();
        assert_eq!(budget.reserved(), 100);
        drop(first);
        assert_eq!(budget.reserved(), 40);
        assert!(budget.reserve(61, Some(100)).is_none());
        assert!(budget.reserve(1_000, None).is_some(), "without a limit everything fits");
        drop(second);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn reservations_from_many_threads_leave_nothing_behind() {
        let budget = Arc::new(MemoryBudget::default());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for bytes in 0..1_000 {
                        let held = budget.reserve(bytes, Some(4_000));
                        assert!(budget.reserved() <= 4_000);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(budget.reserved(), 0);
    }
}
