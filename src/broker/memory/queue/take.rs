//! Who gets which query.

use std::time::Instant;

use super::{
    lines::Lines,
    order::{Item, Key},
    spot::Place,
};
use crate::{
    broker::{ClaimScope, Claimant},
    model::WorkerId,
};

/// So many at most that cannot be taken are met at once, so that nobody waits for long for the lock. Each one that was met
/// is out of the way of the next claim.
pub(in super::super) const MET_AT_ONCE: usize = 1_000;

/// What becomes of the query that is first.
#[derive(Debug)]
pub(in super::super) enum Verdict<T> {
    Take(T),
    /// Its owner runs as many as it may.
    SetAside,
    /// It has stopped waiting.
    Gone,
}

/// Which line a query is first in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Free,
    OpenLanes,
    OwnLanes,
}

#[derive(Debug, Clone, Copy)]
struct Pick {
    source: Source,
    key: Key,
    /// The first of those that anyone could take.
    anyones: Option<Key>,
}

/// The one that is served first.
fn first(one: Option<(Key, Source)>, other: Option<(Key, Source)>) -> Option<(Key, Source)> {
    match (one, other) {
        (Some(one), Some(other)) if other.0 < one.0 => Some(other),
        (one, other) => one.or(other),
    }
}

impl Lines {
    /// Takes the first query for a claimant that `decide` lets it take. If too many come before it, others are told to try
    /// again.
    pub(super) fn take<T>(
        &mut self,
        claimant: Claimant<'_>,
        now: Instant,
        mut decide: impl FnMut(&Item) -> Verdict<T>,
    ) -> Option<T> {
        self.ripen(Some(claimant.worker), now);
        for _ in 0..MET_AT_ONCE {
            let pick = self.pick(claimant)?;
            let item = self.pop(pick.source, claimant.worker)?;
            match decide(&item) {
                Verdict::Take(taken) => {
                    self.taken(&item, pick, claimant);
                    return Some(taken);
                }
                Verdict::SetAside => self.set_aside(item),
                Verdict::Gone => {
                    // It is out of its heap already, but stands in line until it is told otherwise.
                    self.remove(&item.entry);
                }
            }
        }
        self.news |= self.pick(claimant).is_some();
        None
    }

    fn pick(&mut self, claimant: Claimant<'_>) -> Option<Pick> {
        let free = self.free.first_live().map(Item::key);
        let open = self.lanes.first(None);
        let own = self.lanes.first(Some(claimant.worker));
        let anyones = first(free.map(|key| (key, Source::Free)), open.map(|key| (key, Source::OpenLanes)));
        let wanted = anyones.filter(|_| claimant.scope == ClaimScope::Open);
        let (key, source) = first(wanted, own.map(|key| (key, Source::OwnLanes)))?;
        Some(Pick { source, key, anyones: anyones.map(|(key, _)| key) })
    }

    fn pop(&mut self, source: Source, worker: WorkerId) -> Option<Item> {
        match source {
            Source::Free => self.free.pop(),
            Source::OpenLanes => self.lanes.pop(None),
            Source::OwnLanes => self.lanes.pop(Some(worker)),
        }
    }

    fn taken(&mut self, item: &Item, pick: Pick, claimant: Claimant<'_>) {
        self.tell_time(pick);
        let taken_lane = item.lane().filter(|_| claimant.takes_lane);
        let newly = taken_lane.filter(|name| self.lanes.holder(name).is_none());
        if let Some(name) = taken_lane {
            self.lanes.hold(name, claimant.worker);
        }
        self.leave_line(&item.entry, Place::Nowhere);
        self.leave(&item.entry, item.rank);
        if let Some(name) = newly {
            self.now_held(name);
        }
    }

    /// A worker's own lanes may be far ahead of the others in their tags: the time does not pass those.
    fn tell_time(&mut self, pick: Pick) {
        let Key { rank, tag, .. } = pick.key;
        match pick.anyones.filter(|_| pick.source == Source::OwnLanes) {
            Some(first) if first.rank < rank => {}
            Some(first) if first.rank == rank => self.clocks.serve(rank, tag, Some(first.tag)),
            _ => self.clocks.serve(rank, tag, None),
        }
    }
}
