//! Number of waiting and running queries of each owner, in all kinds together. Counts nothing unless there is a limit.

use std::collections::HashMap;

use crate::{state::QueryState, sync::Mutex};

use super::MemoryLimits;

#[derive(Debug, Default)]
pub(super) struct OwnerCounts {
    max_waiting: Option<usize>,
    max_running: Option<usize>,
    counts: Mutex<HashMap<Box<str>, OwnerCount>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct OwnerCount {
    waiting: usize,
    running: usize,
}

fn runs(state: QueryState) -> bool {
    matches!(state, QueryState::Processing | QueryState::Streaming)
}

impl OwnerCounts {
    pub(super) fn new(limits: &MemoryLimits) -> Self {
        Self {
            max_waiting: limits.max_queries_per_owner,
            max_running: limits.max_running_per_owner,
            counts: Mutex::default(),
        }
    }

    fn is_unlimited(&self) -> bool {
        self.max_waiting.is_none() && self.max_running.is_none()
    }

    /// Number of waiting queries and the limit, if the owner has reached it.
    pub(super) fn waiting_limit_reached(&self, owner: &str) -> Option<(usize, usize)> {
        let limit = self.max_waiting?;
        let waiting = self.counts.lock().get(owner).map_or(0, |count| count.waiting);
        (waiting >= limit).then_some((waiting, limit))
    }

    /// Counts a query as running, unless the owner runs as many as it may.
    pub(super) fn try_start(&self, owner: Option<&str>) -> bool {
        let (Some(owner), false) = (owner, self.is_unlimited()) else { return true };
        let mut counts = self.counts.lock();
        let running = counts.get(owner).map_or(0, |count| count.running);
        let free = self.max_running.is_none_or(|limit| running < limit);
        if free {
            entry_mut(&mut counts, owner).running += 1;
        }
        free
    }

    /// Uncounts a query that does not run after all.
    pub(super) fn undo_start(&self, owner: Option<&str>) {
        self.change(owner, |count| count.running -= 1);
    }

    pub(super) fn on_enter(&self, owner: Option<&str>, state: QueryState) {
        if state == QueryState::Pending {
            self.change(owner, |count| count.waiting += 1);
        }
    }

    /// Counts a change of state. The beginning of a run was counted by [`Self::try_start`].
    pub(super) fn on_move(&self, owner: Option<&str>, from: QueryState, to: QueryState) {
        let waiting = (from == QueryState::Pending, to == QueryState::Pending);
        let stopped = runs(from) && !runs(to);
        if waiting.0 != waiting.1 || stopped {
            self.change(owner, |count| {
                count.waiting = count.waiting + usize::from(waiting.1) - usize::from(waiting.0);
                count.running -= usize::from(stopped);
            });
        }
    }

    fn change(&self, owner: Option<&str>, change: impl FnOnce(&mut OwnerCount)) {
        let (Some(owner), false) = (owner, self.is_unlimited()) else { return };
        let mut counts = self.counts.lock();
        let count = entry_mut(&mut counts, owner);
        change(count);
        if *count == OwnerCount::default() {
            counts.remove(owner);
        }
    }

    /// True if a query may have to wait for another one of its owner to end.
    pub(super) fn limits_running(&self) -> bool {
        self.max_running.is_some()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.counts.lock().len()
    }
}

fn entry_mut<'a>(counts: &'a mut HashMap<Box<str>, OwnerCount>, owner: &str) -> &'a mut OwnerCount {
    if !counts.contains_key(owner) {
        counts.insert(owner.into(), OwnerCount::default());
    }
    counts.get_mut(owner).expect("inserted if it was missing")
}
