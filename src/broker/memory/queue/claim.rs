//! Chooses the query that a claimant gets.

use std::time::Instant;

use super::{
    position::QueuePosition,
    rank_heap::{QueuedQuery, RankKey},
    scheduler::Scheduler,
};
use crate::{
    broker::{ClaimScope, Claimant},
    model::WorkerId,
};

/// Queries that one claim may skip, capped to bound how long the lock is held. A skipped query is out of the way of the next
/// claim.
pub(in super::super) const MAX_SKIPPED_PER_CLAIM: usize = 1_000;

/// Decision about the first query.
#[derive(Debug)]
pub(in super::super) enum ClaimDecision<T> {
    Take(T),
    /// The owner runs as many queries as it may.
    Throttle,
    /// The query no longer waits.
    Skip,
}

/// The heap in which a query is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimSource {
    Free,
    OpenLanes,
    OwnLanes,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    source: ClaimSource,
    key: RankKey,
    /// The first query that any worker could take.
    first_open: Option<RankKey>,
}

/// The one of two that is served first.
fn first(one: Option<(RankKey, ClaimSource)>, other: Option<(RankKey, ClaimSource)>) -> Option<(RankKey, ClaimSource)> {
    match (one, other) {
        (Some(one), Some(other)) if other.0 < one.0 => Some(other),
        (one, other) => one.or(other),
    }
}

impl Scheduler {
    /// Takes the first query for a claimant that `decide` lets it take. Gives up after too many others, and then asks for
    /// another claim.
    pub(super) fn take<T>(
        &mut self,
        claimant: Claimant<'_>,
        now: Instant,
        mut decide: impl FnMut(&QueuedQuery) -> ClaimDecision<T>,
    ) -> Option<T> {
        self.promote(Some(claimant.worker), now);
        for _ in 0..MAX_SKIPPED_PER_CLAIM {
            let candidate = self.pick(claimant)?;
            let item = self.pop(candidate.source, claimant.worker)?;
            match decide(&item) {
                ClaimDecision::Take(taken) => {
                    self.on_claimed(&item, candidate, claimant);
                    return Some(taken);
                }
                ClaimDecision::Throttle => self.throttle(item),
                ClaimDecision::Skip => {
                    // It is out of its heap already, but its position still says that it is queued.
                    self.remove(&item.entry);
                }
            }
        }
        self.wake_others |= self.pick(claimant).is_some();
        None
    }

    fn pick(&mut self, claimant: Claimant<'_>) -> Option<Candidate> {
        let free = self.free.first_live().map(QueuedQuery::key);
        let open = self.lanes.first(None);
        let own = self.lanes.first(Some(claimant.worker));
        let first_open = first(free.map(|key| (key, ClaimSource::Free)), open.map(|key| (key, ClaimSource::OpenLanes)));
        let wanted = first_open.filter(|_| claimant.scope == ClaimScope::Open);
        let (key, source) = first(wanted, own.map(|key| (key, ClaimSource::OwnLanes)))?;
        Some(Candidate { source, key, first_open: first_open.map(|(key, _)| key) })
    }

    fn pop(&mut self, source: ClaimSource, worker: WorkerId) -> Option<QueuedQuery> {
        match source {
            ClaimSource::Free => self.free.pop(),
            ClaimSource::OpenLanes => self.lanes.pop(None),
            ClaimSource::OwnLanes => self.lanes.pop(Some(worker)),
        }
    }

    fn on_claimed(&mut self, item: &QueuedQuery, candidate: Candidate, claimant: Claimant<'_>) {
        self.advance_clock(candidate);
        let taken_lane = item.lane().filter(|_| claimant.takes_lane);
        let newly = taken_lane.filter(|name| self.lanes.holder(name).is_none());
        if let Some(name) = taken_lane {
            self.lanes.hold(name, claimant.worker);
        }
        self.leave_queue(&item.entry, QueuePosition::None);
        self.leave(&item.entry, item.rank);
        if let Some(name) = newly {
            self.on_lane_held(name);
        }
    }

    /// Advances the virtual time, but not past the tags of open queries: a worker's own lanes may be far ahead of those.
    fn advance_clock(&mut self, candidate: Candidate) {
        let RankKey { rank, tag, .. } = candidate.key;
        match candidate.first_open.filter(|_| candidate.source == ClaimSource::OwnLanes) {
            Some(first) if first.rank < rank => {}
            Some(first) if first.rank == rank => self.clocks.serve(rank, tag, Some(first.tag)),
            _ => self.clocks.serve(rank, tag, None),
        }
    }
}
