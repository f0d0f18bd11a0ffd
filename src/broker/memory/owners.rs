//! How many queries of each owner wait and run, in all kinds together. Nothing is counted unless there is a limit.

use std::collections::HashMap;

use crate::{state::QueryState, sync::Mutex};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerLimits {
    pub waiting: Option<usize>,
    pub running: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    limits: OwnerLimits,
    counts: Mutex<HashMap<Box<str>, Count>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    waiting: usize,
    running: usize,
}

fn runs(state: QueryState) -> bool {
    matches!(state, QueryState::Processing | QueryState::Streaming)
}

impl Owners {
    pub(super) fn new(limits: OwnerLimits) -> Self {
        Self { limits, counts: Mutex::default() }
    }

    fn is_off(&self) -> bool {
        self.limits.waiting.is_none() && self.limits.running.is_none()
    }

    /// If as many queries of the owner wait as may: how many do, and the limit.
    pub(super) fn full(&self, owner: &str) -> Option<(usize, usize)> {
        let limit = self.limits.waiting?;
        let waiting = self.counts.lock().get(owner).map_or(0, |count| count.waiting);
        (waiting >= limit).then_some((waiting, limit))
    }

    /// Counts a query as running, unless the owner runs as many as it may.
    pub(super) fn begin(&self, owner: Option<&str>) -> bool {
        let (Some(owner), false) = (owner, self.is_off()) else { return true };
        let mut counts = self.counts.lock();
        let running = counts.get(owner).map_or(0, |count| count.running);
        let free = self.limits.running.is_none_or(|limit| running < limit);
        if free {
            at(&mut counts, owner).running += 1;
        }
        free
    }

    /// A query that was counted as running does not run after all.
    pub(super) fn did_not_begin(&self, owner: Option<&str>) {
        self.change(owner, |count| count.running -= 1);
    }

    pub(super) fn entered(&self, owner: Option<&str>, state: QueryState) {
        if state == QueryState::Pending {
            self.change(owner, |count| count.waiting += 1);
        }
    }

    /// A query went from one state to another. That it begins to run was counted by [`Self::begin`].
    pub(super) fn moved(&self, owner: Option<&str>, from: QueryState, to: QueryState) {
        let waiting = (from == QueryState::Pending, to == QueryState::Pending);
        let stopped = runs(from) && !runs(to);
        if waiting.0 != waiting.1 || stopped {
            self.change(owner, |count| {
                count.waiting = count.waiting + usize::from(waiting.1) - usize::from(waiting.0);
                count.running -= usize::from(stopped);
            });
        }
    }

    fn change(&self, owner: Option<&str>, change: impl FnOnce(&mut Count)) {
        let (Some(owner), false) = (owner, self.is_off()) else { return };
        let mut counts = self.counts.lock();
        let count = at(&mut counts, owner);
        change(count);
        if *count == Count::default() {
            counts.remove(owner);
        }
    }

    /// Whether anyone waits for another query of its owner to end.
    pub(super) fn limits_running(&self) -> bool {
        self.limits.running.is_some()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.counts.lock().len()
    }
}

fn at<'a>(counts: &'a mut HashMap<Box<str>, Count>, owner: &str) -> &'a mut Count {
    if !counts.contains_key(owner) {
        counts.insert(owner.into(), Count::default());
    }
    counts.get_mut(owner).expect("inserted if it was missing")
}
