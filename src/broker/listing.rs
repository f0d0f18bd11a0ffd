//! What is told about queries and dead letters to whoever lists them.

use std::{sync::Arc, time::SystemTime};

use thiserror::Error;

use crate::{
    model::{Failure, QueryId, WorkerId},
    protocol::JsonText,
    state::QueryState,
};

use super::{SubmitError, Unavailable};

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

#[derive(Debug, Error, PartialEq, Eq)]
#[error("there is no dead letter {0}; it may have been requeued, purged or dropped by age or number (dead_letters)")]
pub struct NoSuchDeadLetter(pub QueryId);

/// Why nothing can be done with a dead letter.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DeadLetterError {
    #[error(transparent)]
    NoSuchDeadLetter(#[from] NoSuchDeadLetter),
    /// Its query could not be submitted again.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
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
