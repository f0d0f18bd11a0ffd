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
    record::{QueryMeta, RareMeta},
    retention::STOPPED,
};

impl MemoryBroker {
    pub(super) fn accept(
        &self,
        query: NewQuery,
        requeued_from: Option<QueryId>,
        now: Instant,
    ) -> Result<Submitted, SubmitError> {
        let kind_state = self.kind_state_or_create(&query.spec.kind);
        let mut index = self.index.lock();
        if let Some(known) = index.get(&query.id) {
            drop(index);
            return if known.meta.spec == query.spec {
                Ok(Submitted { state: known.state(), existed: true })
            } else {
                Err(SubmitError::Conflict { id: query.id })
            };
        }
        let shed = self.admit(&query.spec)?;
        let arrival = QueryMeta {
            id: query.id,
            number: self.next_number.fetch_add(1, Relaxed),
            spec: query.spec,
            deadline: query.deadline.and_then(|left| now.checked_add(left)),
            abandon_after: query.abandon_after,
            rare: RareMeta::new(requeued_from, query.trace),
            lane: query.lane,
            kind_state: kind_state.clone(),
        };
        let entry = Arc::new(Entry::new(arrival, now));
        index.insert(&entry);
        drop(index);
        if let Some(shed) = shed {
            self.retire(shed, now);
        }
        self.watch_deadline(&entry);
        kind_state.queue.push(&entry, now);
        if self.closed.load(SeqCst) && self.reject_entry(&entry, RejectReason::Shutdown, STOPPED) {
            // The broker closed in between, perhaps before this query was in the queue.
            return Ok(Submitted { state: QueryState::Rejected, existed: false });
        }
        Ok(Submitted { state: QueryState::Pending, existed: false })
    }

    /// Makes room for a query, or returns why there is none. The caller retires the query that was pushed out.
    fn admit(&self, spec: &QuerySpec) -> Result<Option<Arc<Entry>>, SubmitError> {
        if self.closed.load(Relaxed) {
            return Err(SubmitError::Closed);
        }
        if let Some(owner) = &spec.owner
            && let Some((waiting, limit)) = self.owners.waiting_limit_reached(owner)
        {
            return Err(SubmitError::OwnerQueueFull { owner: owner.clone(), waiting, limit });
        }
        match self.fullness(spec.payload.len()) {
            None => Ok(None),
            Some(full) => self.shed_for(spec, &full).map(Some).ok_or(full),
        }
    }

    /// The reason why a payload of this size has no room in the queue. A query that waits alone may be of any size.
    fn fullness(&self, payload: usize) -> Option<SubmitError> {
        let (waiting, bytes) = (self.waiting.queries.load(Relaxed), self.waiting.bytes.load(Relaxed));
        let (limit, most) = (self.limits.max_queries, self.limits.max_waiting_bytes);
        if waiting >= limit {
            return Some(SubmitError::QueueFull { waiting, limit });
        }
        let fits = waiting == 0 || bytes.saturating_add(payload) <= most;
        (!fits).then_some(SubmitError::QueueBytesFull { bytes, payload, limit: most })
    }

    /// True if the queue could take this query in place of that one.
    fn makes_room(&self, victim: &Entry, query: &QuerySpec) -> bool {
        let rest = self.waiting.bytes.load(Relaxed).saturating_sub(victim.payload_bytes());
        rest == 0 || rest.saturating_add(query.payload.len()) <= self.limits.max_waiting_bytes
    }

    /// Ends the newest query of the worst priority, if that is worse than this one's and frees room enough.
    fn shed_for(&self, query: &QuerySpec, full: &SubmitError) -> Option<Arc<Entry>> {
        let priority = query.priority;
        loop {
            let kinds = self.kinds.read();
            let candidates = kinds.values().filter_map(|kind_state| kind_state.queue.shed_candidate());
            let victim = candidates.max_by_key(|entry| (entry.meta.spec.priority, entry.meta.number))?;
            drop(kinds);
            let worse = victim.meta.spec.priority;
            if worse <= priority || !self.makes_room(&victim, query) {
                return None;
            }
            let message = format!("pushed out by a query of priority {priority}, its own is {worse}: {full}");
            let shed = victim.end_waiting(Outcome::Rejected { reason: RejectReason::Shed, message: message.into() });
            self.leave_queue(&victim);
            if shed {
                return Some(victim);
            }
        }
    }
}
