//! Accepts queries, as far as there is room for them.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Instant,
};

use crate::{
    broker::{NewQuery, SubmitError, Submitted},
    model::{Outcome, QueryId, QuerySpec, RejectReason},
    state::QueryState,
};

use super::{
    MemoryBroker,
    entry::Entry,
    record::{Arrival, Extras},
    retention::STOPPED,
};

impl MemoryBroker {
    pub(super) fn accept(
        &self,
        query: NewQuery,
        requeued_from: Option<QueryId>,
        now: Instant,
    ) -> Result<Submitted, SubmitError> {
        let tally = self.tally_or_create(&query.spec.kind);
        let mut index = self.index.lock();
        if let Some(known) = index.get(&query.id) {
            drop(index);
            return if known.fixed.spec == query.spec {
                Ok(Submitted { state: known.state(), existed: true })
            } else {
                Err(SubmitError::Conflict { id: query.id })
            };
        }
        let shed = self.admit(&query.spec)?;
        let arrival = Arrival {
            id: query.id,
            number: self.next_number.fetch_add(1, Relaxed),
            spec: query.spec,
            deadline: query.deadline.and_then(|left| now.checked_add(left)),
            abandon_after: query.abandon_after,
            extras: Extras::new(requeued_from, query.trace),
            lane: query.lane,
            tally: tally.clone(),
        };
        let entry = Arc::new(Entry::new(arrival, now));
        index.insert(&entry);
        drop(index);
        if let Some(shed) = shed {
            self.retire(shed, now);
        }
        self.watch_deadline(&entry);
        tally.queue.push(&entry, now);
        if self.closed.load(SeqCst) && self.reject_entry(&entry, RejectReason::Shutdown, STOPPED) {
            // It closed in between, and may have looked at the queue before this one was in it.
            return Ok(Submitted { state: QueryState::Rejected, existed: false });
        }
        Ok(Submitted { state: QueryState::Pending, existed: false })
    }

    /// Makes room for a query, or says why there is none. The caller retires who had to make room.
    fn admit(&self, spec: &QuerySpec) -> Result<Option<Arc<Entry>>, SubmitError> {
        if self.closed.load(Relaxed) {
            return Err(SubmitError::Closed);
        }
        if let Some(owner) = &spec.owner
            && let Some((waiting, limit)) = self.owners.full(owner)
        {
            return Err(SubmitError::OwnerQueueFull { owner: owner.clone(), waiting, limit });
        }
        match self.fullness(spec.payload.len()) {
            None => Ok(None),
            Some(full) => self.shed_for(spec, &full).map(Some).ok_or(full),
        }
    }

    /// Why no query with a payload of so many bytes may wait with the others. One that waits alone may be of any size.
    fn fullness(&self, payload: usize) -> Option<SubmitError> {
        let (waiting, bytes) = (self.waiting.queries.load(Relaxed), self.waiting.bytes.load(Relaxed));
        let (limit, most) = (self.limits.max_queries, self.limits.max_waiting_bytes);
        if waiting >= limit {
            return Some(SubmitError::QueueFull { waiting, limit });
        }
        let fits = waiting == 0 || bytes.saturating_add(payload) <= most;
        (!fits).then_some(SubmitError::QueueBytesFull { bytes, payload, limit: most })
    }

    /// Whether the queue could take this query in place of that one.
    fn makes_room(&self, victim: &Entry, query: &QuerySpec) -> bool {
        let rest = self.waiting.bytes.load(Relaxed).saturating_sub(victim.payload_bytes());
        rest == 0 || rest.saturating_add(query.payload.len()) <= self.limits.max_waiting_bytes
    }

    /// Ends the newest query of the worst priority, if that is worse than this one's and makes room enough.
    fn shed_for(&self, query: &QuerySpec, full: &SubmitError) -> Option<Arc<Entry>> {
        let priority = query.priority;
        loop {
            let kinds = self.kinds.read();
            let candidates = kinds.values().filter_map(|tally| tally.queue.newest_of_worst());
            let victim = candidates.max_by_key(|entry| (entry.fixed.spec.priority, entry.fixed.number))?;
            drop(kinds);
            let worse = victim.fixed.spec.priority;
            if worse <= priority || !self.makes_room(&victim, query) {
                return None;
            }
            let message = format!("pushed out by a query of priority {priority}, its own is {worse}: {full}");
            let shed = victim.end_waiting(Outcome::Rejected { reason: RejectReason::Shed, message: message.into() });
            self.leave_line(&victim);
            if shed {
                return Some(victim);
            }
        }
    }
}
