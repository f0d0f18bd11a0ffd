//! Where queries wait and where their events are kept: the contract that every broker fulfils.
//!
//! The pool knows only these traits. They are shaped by the hardest case, several replicas that share one database:
//! a submit resolves once it is durable; a claim is a lease that can be lost; whoever appends or ends a query proves
//! with the lease that the attempt is still its own; a cancel may come from elsewhere; a reader may sit on another
//! machine than the worker.

mod memory;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Event, Outcome, QueryId, QuerySpec, WorkerId},
    protocol::JsonText,
    state::QueryState,
};

pub use memory::{MemoryBroker, MemoryLimits};

/// Owns queries from submit to the end of their retention.
#[async_trait]
pub trait Broker: Send + Sync + fmt::Debug {
    /// Accepts a query. Resolves only when it will survive what this broker promises to survive.
    async fn submit(&self, query: NewQuery) -> Result<Submitted, SubmitError>;

    /// Hands the first waiting query that the claimant can run to it, counting an attempt. Only to be called for a
    /// worker that can start now.
    async fn claim(&self, claimant: Claimant<'_>) -> Option<Claim>;

    /// Asks for a query to end. Never waits for a worker.
    async fn cancel(&self, id: &QueryId, reason: &str) -> Result<CancelFound, NoSuchQuery>;

    /// Opens a cursor on a query's log at a sequence number.
    async fn read(&self, id: &QueryId, from: u64) -> Result<Box<dyn EventReader>, NoSuchQuery>;

    async fn get(&self, id: &QueryId) -> Result<QueryInfo, NoSuchQuery>;

    /// Lists queries in order of arrival.
    async fn list(&self, filter: &QueryFilter, page: Page) -> QueryPage;

    /// Queries of a kind that wait for a worker. Cheap: it is asked on every dispatch.
    fn waiting(&self, kind: &str) -> usize;

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
/// Dropping a lease without ending it ends the query in an error, so that not even a panic leaves a query without
/// its final event.
#[async_trait]
pub trait Lease: Send + Sync + fmt::Debug {
    fn query(&self) -> &QueryId;

    /// Adds the worker's output to the log. Waiting here is what slows a worker down.
    async fn append(&mut self, outputs: Vec<Output>) -> Result<(), LeaseLost>;

    /// Adds the last output and ends the query. A cancel that was accepted before turns any outcome into Cancelled.
    async fn finish(self: Box<Self>, outputs: Vec<Output>, outcome: Outcome) -> Result<QueryState, LeaseLost>;

    /// Gives the query back as if it had never been claimed: no worker has seen it.
    async fn release(self: Box<Self>);

    /// What the holder is told from outside.
    fn orders(&mut self) -> &mut watch::Receiver<Order>;
}

/// A cursor on a query's log.
#[async_trait]
pub trait EventReader: Send {
    /// Waits for events past the cursor and moves it. An empty batch is the end: the final event has been read.
    async fn next(&mut self) -> Vec<Event>;
}

/// A query to be accepted.
#[derive(Debug, Clone)]
pub struct NewQuery {
    pub id: QueryId,
    pub spec: QuerySpec,
    /// What is left of the client's own deadline. Not part of what makes two submits the same.
    pub deadline: Option<Duration>,
    /// Cancel the query once nobody has read its events for this long. `None`: it runs unattended.
    pub abandon_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub state: QueryState,
    /// The id was known, with the same body.
    pub existed: bool,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SubmitError {
    #[error("the queue is full: {waiting} queries wait, at most {limit} may (queue.max_queries)")]
    QueueFull { waiting: usize, limit: usize },
    #[error("query {id} exists with another body; submit it again unchanged, or choose another id")]
    Conflict { id: QueryId },
    #[error("the server is stopping and takes no more queries")]
    Closed,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("query {0} is not known; it may have ended so long ago that it is no longer kept (results.retention)")]
pub struct NoSuchQuery(pub QueryId);

/// Another replica has the query now, or it has ended: the output of this attempt is worth nothing.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the lease was lost")]
pub struct LeaseLost;

/// Who asks for a query.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub kind: &'a str,
    pub worker: WorkerId,
}

/// A query that is now this process's to run.
#[derive(Debug)]
pub struct Claim {
    pub spec: QuerySpec,
    /// From 1.
    pub attempt: u32,
    /// What is left of the client's deadline.
    pub deadline: Option<Duration>,
    pub lease: Box<dyn Lease>,
}

/// What a worker produced for its query.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Session(Box<str>),
    Message(JsonText),
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
