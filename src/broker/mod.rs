//! Where queries wait and where their events are kept: the contract that every broker fulfils.
//!
//! The pool knows only [`Broker`], [`Lease`] and [`EventReader`]. They are shaped by the hardest case, several replicas that
//! share one database: a submit resolves once it is durable; a claim is a lease that can be lost; every append and every
//! ending is checked against the lease; a cancel may come from elsewhere; a reader may sit on another machine than the worker.
//!
//! A broker is a variant of these three enums, an arm of `delegate!` and a type with the same methods. Static dispatch lets a
//! call that need not wait, which is nearly every call to the memory broker, do without a boxed future.

/// Calls a method of the broker in use.
macro_rules! delegate {
    ($self:expr, $broker:ident => $call:expr) => {
        match $self {
            Self::Memory($broker) => $call,
        }
    };
}

mod batch;
mod error;
mod lease;
mod memory;
mod output;
mod query;
mod slice;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::QueryMetrics,
    model::{QueryId, RejectReason, WorkerId},
    state::QueryState,
};

pub use batch::{BATCH_MAX_ITEM_BYTES, MessageBatch, MessageBatchBuilder};
pub use error::{
    AppendError, DeadLetterError, LeaseLost, NoSuchDeadLetter, NoSuchQuery, QueryError, SubmitError, Unavailable,
};
pub use lease::{AttemptCounts, Ending, Lease, LeaseStatus};
pub use memory::{MemoryBroker, MemoryLease, MemoryLimits, MemoryReader};
pub use output::Output;
pub use query::{
    CancelOutcome, Claim, ClaimScope, Claimant, DeadLetter, DeadLetterPage, Demand, FailedAttempt, NewQuery, Page,
    QueryFilter, QueryInfo, QueryPage, Submitted,
};
pub use slice::EventSlice;

/// Owns queries from submit to the end of their retention. A clone is another handle to the same broker.
#[derive(Debug, Clone)]
pub enum Broker {
    Memory(Arc<MemoryBroker>),
}

impl Broker {
    #[must_use]
    pub fn memory(limits: MemoryLimits, metrics: Arc<QueryMetrics>) -> Self {
        Self::Memory(Arc::new(MemoryBroker::new(limits, metrics)))
    }

    /// Accepts a query. Resolves only when it will survive what this broker promises to survive.
    pub async fn submit(&self, query: NewQuery) -> Result<Submitted, SubmitError> {
        delegate!(self, broker => broker.submit(query).await)
    }

    /// Hands the first waiting query that the claimant can run to it, counting an attempt. Only to be called for a
    /// worker that can start now.
    pub async fn claim(&self, claimant: Claimant<'_>) -> Result<Option<Claim>, Unavailable> {
        delegate!(self, broker => broker.claim(claimant).await)
    }

    /// Asks for a query to end. Never waits for a worker.
    pub async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelOutcome, QueryError> {
        delegate!(self, broker => broker.cancel(id, reason).await)
    }

    /// Opens a cursor on a query's log at a sequence number.
    pub async fn read(&self, id: &QueryId, from: u64) -> Result<EventReader, QueryError> {
        delegate!(self, broker => broker.read(id, from).await)
    }

    pub async fn get(&self, id: &QueryId) -> Result<QueryInfo, QueryError> {
        delegate!(self, broker => broker.get(id).await)
    }

    /// Lists queries in order of arrival.
    pub async fn list(&self, filter: &QueryFilter, page: Page) -> Result<QueryPage, Unavailable> {
        delegate!(self, broker => broker.list(filter, page).await)
    }

    /// Lists dead letters in order of their queries' arrival.
    pub async fn dead_letters(&self, kind: Option<&str>, page: Page) -> Result<DeadLetterPage, Unavailable> {
        delegate!(self, broker => broker.dead_letters(kind, page).await)
    }

    pub async fn dead_letter(&self, id: &QueryId) -> Result<DeadLetter, DeadLetterError> {
        delegate!(self, broker => broker.dead_letter(id).await)
    }

    /// Submits a dead letter's query afresh under another id; the letter is a plain ended query from then on.
    pub async fn requeue(&self, id: &QueryId, new_id: QueryId) -> Result<(), DeadLetterError> {
        delegate!(self, broker => broker.requeue(id, new_id).await)
    }

    /// Deletes a dead letter.
    pub async fn purge(&self, id: &QueryId) -> Result<(), DeadLetterError> {
        delegate!(self, broker => broker.purge(id).await)
    }

    /// Reserves the queries of a lane for this worker. False if another worker holds the lane.
    #[must_use]
    pub fn hold_lane(&self, kind: &str, lane: &Arc<str>, worker: WorkerId) -> bool {
        delegate!(self, broker => broker.hold_lane(kind, lane, worker))
    }

    /// Opens a lane (or, with `None`, all lanes) that the worker holds to everyone again.
    pub fn release_lanes(&self, kind: &str, worker: WorkerId, lane: Option<&str>) {
        delegate!(self, broker => broker.release_lanes(kind, worker, lane));
    }

    #[must_use]
    pub fn lane_holder(&self, kind: &str, lane: &str) -> Option<WorkerId> {
        delegate!(self, broker => broker.lane_holder(kind, lane))
    }

    /// Number of waiting queries that a claimant of [`ClaimScope::Open`] that holds no lane could get now. Cheap: it is asked
    /// on every dispatch.
    #[must_use]
    pub fn open_count(&self, kind: &str) -> usize {
        delegate!(self, broker => broker.open_count(kind))
    }

    /// True if a query waits in a lane that this worker holds.
    #[must_use]
    pub fn has_query_for(&self, kind: &str, worker: WorkerId) -> bool {
        delegate!(self, broker => broker.has_query_for(kind, worker))
    }

    /// The waiting queries as scaling sees them. `max_lanes` bounds how many lanes are named.
    #[must_use]
    pub fn demand(&self, kind: &str, max_lanes: usize) -> Demand {
        delegate!(self, broker => broker.demand(kind, max_lanes))
    }

    /// Ends a query that still waits. False if it does not wait (any more).
    pub async fn reject(&self, id: &QueryId, reason: RejectReason, message: &str) -> bool {
        delegate!(self, broker => broker.reject(id, reason, message).await)
    }

    /// Ends the waiting queries of a kind for which there will be no worker, and counts them.
    pub async fn reject_waiting(&self, kind: &str, reason: RejectReason, message: &str) -> usize {
        delegate!(self, broker => broker.reject_waiting(kind, reason, message).await)
    }

    /// Number of queries that were accepted and have not ended.
    #[must_use]
    pub fn unfinished_count(&self) -> usize {
        delegate!(self, broker => broker.unfinished_count())
    }

    /// Number of queries of a kind that wait, run or retry.
    #[must_use]
    pub fn unfinished_count_of(&self, kind: &str) -> usize {
        delegate!(self, broker => broker.unfinished_count_of(kind))
    }

    /// Number of queries of a kind that wait for a worker.
    #[must_use]
    pub fn waiting_count(&self, kind: &str) -> usize {
        delegate!(self, broker => broker.waiting_count(kind))
    }

    /// Submit time of the oldest waiting query of a kind.
    #[must_use]
    pub fn oldest_waiting(&self, kind: &str) -> Option<Instant> {
        delegate!(self, broker => broker.oldest_waiting(kind))
    }

    /// Number of kept queries, by kind and state.
    #[must_use]
    pub fn state_counts(&self) -> Vec<(Arc<str>, QueryState, usize)> {
        delegate!(self, broker => broker.state_counts())
    }

    /// Resolves when queries may have begun to wait other than by a submit through this handle.
    pub async fn wait_for_arrival(&self) {
        delegate!(self, broker => broker.wait_for_arrival().await);
    }

    /// Enforces deadlines of waiting queries and retention until told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        delegate!(self, broker => broker.run(stop).await);
    }

    /// Ends the waiting queries that would be lost with this process, and counts them. Nothing more will be claimed.
    pub async fn close(&self) -> usize {
        delegate!(self, broker => broker.close().await)
    }
}

/// A cursor on a query's log: yields the events past it in batches, and ends after the final event.
///
/// The events are shared with the log. No lock of the broker is held while they are used.
#[derive(Debug)]
pub enum EventReader {
    Memory(MemoryReader),
}

impl Stream for EventReader {
    type Item = Result<Vec<EventSlice>, Unavailable>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        delegate!(self.get_mut(), reader => Pin::new(reader).poll_next(context))
    }
}

/// The next batch of a reader as plain events; empty at the end.
#[cfg(test)]
pub(crate) async fn next_events(reader: &mut EventReader) -> Result<Vec<crate::model::Event>, Unavailable> {
    use tokio_stream::StreamExt;
    let batch = reader.next().await.transpose()?.unwrap_or_default();
    Ok(batch.iter().flat_map(EventSlice::to_events).collect())
}
