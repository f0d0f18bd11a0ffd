//! Where queries wait and where their events are kept: the contract that every broker fulfils.
//!
//! The pool knows only these traits. They are shaped by the hardest case, several replicas that share one database:
//! a submit resolves once it is durable; a claim is a lease that can be lost; whoever appends or ends a query proves
//! with the lease that the attempt is still its own; a cancel may come from elsewhere; a reader may sit on another
//! machine than the worker.

mod batch;
mod error;
mod memory;
mod output;
mod slice;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Failure, Outcome, QueryId, QuerySpec, RejectReason, Retrying, WorkerId},
    protocol::JsonText,
    soon::Soon,
    state::QueryState,
    trace::{Link, QueryTrace},
};

pub use batch::{BATCH_MAX_ITEM_BYTES, MessageBatch, MessageBatchBuilder};
pub use error::{
    AppendError, DeadLetterError, LeaseLost, NoSuchDeadLetter, NoSuchQuery, QueryError, SubmitError, Unavailable,
};
pub use memory::{MemoryBroker, MemoryLimits};
pub use output::Output;
pub use slice::EventSlice;

/// Owns queries from submit to the end of their retention.
#[async_trait]
pub trait Broker: Send + Sync + fmt::Debug {
    /// Accepts a query. Resolves only when it will survive what this broker promises to survive.
    fn submit(&self, query: NewQuery) -> Soon<'_, Result<Submitted, SubmitError>>;

    /// Hands the first waiting query that the claimant can run to it, counting an attempt. Only to be called for a
    /// worker that can start now.
    fn claim<'a>(&'a self, claimant: Claimant<'a>) -> Soon<'a, Result<Option<Claim>, Unavailable>>;

    /// Asks for a query to end. Never waits for a worker.
    async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelFound, QueryError>;

    /// Opens a cursor on a query's log at a sequence number.
    fn read<'a>(&'a self, id: &'a QueryId, from: u64) -> Soon<'a, Result<EventReader, QueryError>>;

    async fn get(&self, id: &QueryId) -> Result<QueryInfo, QueryError>;

    /// Lists queries in order of arrival.
    async fn list(&self, filter: &QueryFilter, page: Page) -> Result<QueryPage, Unavailable>;

    /// Lists dead letters in order of their queries' arrival.
    async fn dead_letters(&self, kind: Option<&str>, page: Page) -> Result<DeadLetterPage, Unavailable>;

    async fn dead_letter(&self, id: &QueryId) -> Result<DeadLetter, DeadLetterError>;

    /// Submits a dead letter's query afresh under another id; the letter is a plain ended query from then on.
    async fn requeue(&self, id: &QueryId, new_id: QueryId) -> Result<(), DeadLetterError>;

    /// Forgets a dead letter.
    async fn purge(&self, id: &QueryId) -> Result<(), DeadLetterError>;

    /// The queries of a lane are for this worker alone from now on. False if another worker holds it.
    fn hold(&self, kind: &str, lane: &Arc<str>, worker: WorkerId) -> bool;

    /// A lane (or, with `None`, all lanes) that the worker holds is open to everyone again.
    fn let_go(&self, kind: &str, worker: WorkerId, lane: Option<&str>);

    /// Who holds a lane.
    fn holder(&self, kind: &str, lane: &str) -> Option<WorkerId>;

    /// Waiting queries that a claimant of [`Scope::Open`] that holds no lane could get now. Cheap: it is asked on every
    /// dispatch.
    fn open(&self, kind: &str) -> usize;

    /// Whether a query waits in a lane that this worker holds.
    fn waits_for(&self, kind: &str, worker: WorkerId) -> bool;

    /// What waits, for whoever decides how many workers there should be. `lanes` bounds how many are named.
    fn demand(&self, kind: &str, lanes: usize) -> Demand;

    /// Ends a query that still waits. False if it does not wait (any more).
    async fn reject(&self, id: &QueryId, reason: RejectReason, message: &str) -> bool;

    /// Ends the waiting queries of a kind: there will be no worker for them.
    async fn reject_waiting(&self, kind: &str, reason: RejectReason, message: &str) -> usize;

    /// Queries that were accepted and have not ended.
    fn unfinished(&self) -> usize;

    /// Those of one kind: waiting, running, retrying.
    fn unfinished_of(&self, kind: &str) -> usize;

    /// Queries of a kind that wait for a worker.
    fn waiting(&self, kind: &str) -> usize;

    /// When the waiting query of a kind that came first was submitted.
    fn oldest(&self, kind: &str) -> Option<Instant>;

    /// Queries that are kept, by kind and state.
    fn counts(&self) -> Vec<(Arc<str>, QueryState, usize)>;

    /// Resolves when queries may have begun to wait other than by a submit through this handle.
    async fn arrival(&self);

    /// The broker's own chores: deadlines of waiting queries, retention. Runs until told to stop.
    async fn run(&self, stop: CancellationToken);

    /// Nothing more will be claimed: ends the waiting queries that would be lost with this process, and counts them.
    async fn close(&self) -> usize;
}

/// One attempt at a query, held by this process.
///
/// Not even a panic may leave a query without its final event: a lease that is dropped without being ended ends its query
/// in an error, or lapses, so that another attempt can. While the store is out of reach, ending an attempt is tried again
/// until it succeeds or the lease lapses.
#[async_trait]
pub trait Lease: Send + Sync + fmt::Debug {
    fn query(&self) -> &QueryId;

    fn spec(&self) -> &QuerySpec;

    /// This attempt, and how those before it failed.
    fn tries(&self) -> Tries;

    /// Adds as much as there is room for, at once. What is left, and what is wrong, is for `append` to deal with.
    fn append_now(&mut self, outputs: &mut Vec<Output>);

    /// Moves the worker's output from `outputs` to the log. Waiting here is what slows a worker down. May be dropped at
    /// any time: what was not added yet is still in `outputs` then.
    async fn append(&mut self, outputs: &mut Vec<Output>) -> Result<(), AppendError>;

    /// From now on a full log drops its oldest events at once: the worker is to be heard, whoever reads.
    fn hurry(&mut self);

    /// Adds the last output, whether there is room or not, and ends the attempt. A cancel that was accepted before
    /// turns any ending into Cancelled. Says which state the query is in now.
    fn finish(self: Box<Self>, outputs: Vec<Output>, ending: Ending) -> Soon<'static, Result<QueryState, LeaseLost>>;

    /// Gives the query back as if it had never been claimed: no worker has seen it.
    async fn release(self: Box<Self>);

    /// What the holder is told from outside. The claimant's bell rings when there is something new.
    fn order(&self) -> Order;
}

/// A cursor on a query's log: yields the events past it in batches, and ends after the final event.
///
/// The events are shared with the log. No lock of the broker is held while they are used.
pub type EventReader = Pin<Box<dyn Stream<Item = Result<Vec<EventSlice>, Unavailable>> + Send>>;

/// The next batch of a reader as plain events; empty at the end.
#[cfg(test)]
pub(crate) async fn next_events(reader: &mut EventReader) -> Result<Vec<crate::model::Event>, Unavailable> {
    use tokio_stream::StreamExt;
    let batch = reader.next().await.transpose()?.unwrap_or_default();
    Ok(batch.iter().flat_map(EventSlice::to_events).collect())
}

/// A query to be accepted.
#[derive(Debug)]
pub struct NewQuery {
    pub id: QueryId,
    pub spec: QuerySpec,
    /// What is left of the client's own deadline. Not part of what makes two submits the same.
    pub deadline: Option<Duration>,
    /// Cancel the query once nobody has read its events for this long. `None`: it runs unattended.
    pub abandon_after: Option<Duration>,
    /// Queries that must reach the same worker share a lane: a key, a session. Not part of what makes two submits the
    /// same.
    pub lane: Option<Arc<str>>,
    /// What is traced of it until it ends. Not part of what makes two submits the same.
    pub trace: Option<Box<QueryTrace>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub state: QueryState,
    /// The id was known, with the same body.
    pub existed: bool,
}

/// How an attempt ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The query is over; as a dead letter it is kept for a person to look at.
    Over { outcome: Outcome, dead_letter: bool },
    /// The query goes back to the queue after a delay.
    Retry(Retrying),
}

impl Ending {
    /// An ending that nobody needs to look at.
    #[must_use]
    pub fn plain(outcome: Outcome) -> Self {
        Self::Over { outcome, dead_letter: false }
    }
}

/// The attempts of a query so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tries {
    /// The running one, from 1.
    pub attempt: u32,
    /// How many before it ended because the worker did.
    pub died: u32,
    /// How many before it ended with an error that the worker reported as retryable.
    pub reported: u32,
}

/// Who asks for a query.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub kind: &'a str,
    pub worker: WorkerId,
    pub scope: Scope,
    /// Whether the lane of the query it gets is its own from then on.
    pub takes_lane: bool,
    /// Rung when there is a new order for the query it gets.
    pub bell: Option<&'a Arc<Notify>>,
}

/// Which of the waiting queries a claimant wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Any query that waits for no other worker: those without a lane, of open lanes, and of the lanes it holds.
    Open,
    /// Only queries of lanes that it holds.
    Held,
}

/// What waits, of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// All that wait.
    pub waiting: usize,
    /// As [`Broker::open`] says.
    pub open: usize,
    /// Since when the open query that has waited longest waits.
    pub oldest: Option<Instant>,
    /// The first open lanes with waiting queries, in the order of their first queries.
    pub lanes: Vec<Arc<str>>,
    /// For each of the lanes, since when its first query waits.
    pub lanes_since: Vec<Instant>,
}

/// A query that is now this process's to run.
#[derive(Debug)]
pub struct Claim {
    /// What is left of the client's deadline.
    pub deadline: Option<Duration>,
    /// The lane that it waited in.
    pub lane: Option<Arc<str>>,
    pub trace: Option<Link>,
    pub lease: Box<dyn Lease>,
}

/// What the holder of a lease is told from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Run,
    Cancel {
        reason: Arc<str>,
    },
    /// The lease lapsed: stop the worker, drop its output.
    Lost,
}

/// What a cancel found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelFound {
    Queued,
    Running(QueryState),
    Cancelling(QueryState),
    Ended(QueryState),
}

/// What is known of a query beside its events.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryInfo {
    pub id: QueryId,
    pub kind: Arc<str>,
    pub query_type: Option<Box<str>>,
    pub priority: u32,
    pub owner: Option<Box<str>>,
    pub key: Option<Box<str>>,
    pub state: QueryState,
    pub attempts: u32,
    pub worker: Option<WorkerId>,
    pub submitted_at: SystemTime,
    pub started_at: Option<SystemTime>,
    pub ended_at: Option<SystemTime>,
    pub first_sequence: u64,
    pub next_sequence: u64,
    /// Whether it is kept as a dead letter.
    pub dead_letter: bool,
    /// The dead letter that it is the second life of.
    pub requeued_from: Option<QueryId>,
    /// Its own second life.
    pub requeued_as: Option<QueryId>,
}

/// A query that ended in failure, with all that a person needs to judge it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    pub query: QueryInfo,
    pub payload: JsonText,
    /// Every failed attempt, the last one included.
    pub failures: Vec<FailedAttempt>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FailedAttempt {
    pub attempt: u32,
    pub at: SystemTime,
    pub failure: Failure,
}

#[derive(Debug, Clone)]
pub struct DeadLetterPage {
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins, if there is one.
    pub next: Option<u64>,
}

/// Which queries to list. Empty means any.
#[derive(Debug, Clone, Default)]
pub struct QueryFilter {
    pub states: Vec<QueryState>,
    pub kind: Option<String>,
}

/// Which part of a listing.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Position after which the page begins.
    pub after: u64,
    pub size: usize,
}

#[derive(Debug, Clone)]
pub struct QueryPage {
    pub queries: Vec<QueryInfo>,
    /// Where the next page begins, if there is one.
    pub next: Option<u64>,
}
