//! Plain data that goes in and out of a broker.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::Notify;

use crate::{
    model::{Failure, QueryId, QuerySpec, WorkerId},
    protocol::JsonText,
    state::QueryState,
    trace::{QueryTrace, TraceLink},
};

use super::Lease;

/// A query to be accepted.
#[derive(Debug)]
pub struct NewQuery {
    pub id: QueryId,
    pub spec: QuerySpec,
    /// Rest of the client's own deadline. Ignored when two submits are compared.
    pub deadline: Option<Duration>,
    /// Time without a reader after which the query is cancelled. `None`: it runs unattended.
    pub abandon_after: Option<Duration>,
    /// Queries that must reach the same worker share a lane: a key, a session. Ignored when two submits are compared.
    pub lane: Option<Arc<str>>,
    /// Its open span. Ignored when two submits are compared.
    pub trace: Option<Box<QueryTrace>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub state: QueryState,
    /// The id was known, with the same body.
    pub existed: bool,
}

/// A worker that asks for a query.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub kind: &'a str,
    pub worker: WorkerId,
    pub scope: ClaimScope,
    /// True if the worker holds the lane of the query it gets from then on.
    pub takes_lane: bool,
    /// Notified when the [`super::LeaseStatus`] of the query it gets changes.
    pub notify: Option<&'a Arc<Notify>>,
}

/// The waiting queries that a claimant wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimScope {
    /// Any query that waits for no other worker: those without a lane, of open lanes, and of the lanes it holds.
    Open,
    /// Only queries of lanes that it holds.
    Held,
}

/// The waiting queries of one kind, as scaling sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    pub waiting: usize,
    /// See [`super::Broker::open_count`].
    pub open: usize,
    /// Submit time of the oldest open query.
    pub oldest: Option<Instant>,
    /// The first open lanes with waiting queries, in the order of their first queries.
    pub lanes: Vec<Arc<str>>,
    /// Submit time of the first query of each of these lanes.
    pub lanes_since: Vec<Instant>,
}

/// A query that is now this process's to run.
#[derive(Debug)]
pub struct Claim {
    /// Rest of the client's deadline.
    pub deadline: Option<Duration>,
    /// The lane that it waited in.
    pub lane: Option<Arc<str>>,
    pub trace: Option<Box<TraceLink>>,
    pub lease: Lease,
}

/// State of a query when its cancel arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Queued,
    Running(QueryState),
    Cancelling(QueryState),
    Ended(QueryState),
}

/// Description of a query, without its events.
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
    pub dead_letter: bool,
    /// The dead letter whose query was submitted again as this one.
    pub requeued_from: Option<QueryId>,
    /// The query that this dead letter was submitted again as.
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
    /// Position after which the next page begins, if there is one.
    pub next: Option<u64>,
}

/// Selects the queries to list. Empty means any.
#[derive(Debug, Clone, Default)]
pub struct QueryFilter {
    pub states: Vec<QueryState>,
    pub kind: Option<String>,
}

/// A part of a listing.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Position after which the page begins.
    pub after: u64,
    pub size: usize,
}

#[derive(Debug, Clone)]
pub struct QueryPage {
    pub queries: Vec<QueryInfo>,
    /// Position after which the next page begins, if there is one.
    pub next: Option<u64>,
}
