//! Why a broker cannot do what it was asked to.

use thiserror::Error;

use crate::model::QueryId;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SubmitError {
    #[error("the queue is full: {waiting} queries wait, at most {limit} may (queue.max_queries)")]
    QueueFull { waiting: usize, limit: usize },
    #[error(
        "the queue is full: payloads of {bytes} bytes wait, and with this one of {payload} they would be more than \
         {limit} (queue.max_bytes)"
    )]
    QueueBytesFull { bytes: usize, payload: usize, limit: usize },
    #[error(
        "the queue is full for {owner}: {waiting} of its queries wait, at most {limit} may (queue.max_queries_per_owner)"
    )]
    OwnerQueueFull { owner: Box<str>, waiting: usize, limit: usize },
    #[error("query {id} exists with another body; submit it again unchanged, or choose another id")]
    Conflict { id: QueryId },
    #[error("the server is stopping and takes no more queries")]
    Closed,
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The broker cannot do its work now: its store is out of reach or refuses.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("the broker is not available: {0}")]
pub struct Unavailable(pub String);

/// Why nothing can be said of a query.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QueryError {
    #[error(transparent)]
    NoSuchQuery(#[from] NoSuchQuery),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("query {0} is not known; it may have ended so long ago that it is no longer kept (results.retention)")]
pub struct NoSuchQuery(pub QueryId);

/// Another replica has the query now, or it has ended: the output of this attempt is worth nothing.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the lease was lost")]
pub struct LeaseLost;

/// Why output could not be added.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AppendError {
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// The log is full, its readers are slow, and the overflow policy is to fail.
    #[error("the readers did not keep up: the log is full and results.max_stall is over")]
    Overflow,
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
