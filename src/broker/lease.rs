//! One attempt at a query, as the worker that runs it holds it.

use std::sync::Arc;

use crate::{
    model::{Outcome, QueryId, QuerySpec, Retrying},
    state::QueryState,
};

use super::{AppendError, LeaseLost, MemoryLease, Output};

/// One attempt at a query, held by this process.
///
/// Not even a panic may leave a query without its final event: a lease that is dropped without being ended ends its query
/// in an error, or lapses, so that another attempt can. While the store is out of reach, ending an attempt is tried again
/// until it succeeds or the lease lapses.
#[derive(Debug)]
pub enum Lease {
    Memory(MemoryLease),
}

impl Lease {
    #[must_use]
    pub fn query(&self) -> &QueryId {
        delegate!(self, lease => lease.query())
    }

    #[must_use]
    pub fn spec(&self) -> &QuerySpec {
        delegate!(self, lease => lease.spec())
    }

    #[must_use]
    pub fn attempts(&self) -> AttemptCounts {
        delegate!(self, lease => lease.attempts())
    }

    /// Adds as much as there is room for, at once. The rest, and any error, is left for [`Self::append`] to deal with.
    pub fn append_now(&mut self, outputs: &mut Vec<Output>) {
        delegate!(self, lease => lease.append_now(outputs));
    }

    /// Moves the worker's output from `outputs` to the log. Waiting here is what slows a worker down. May be dropped at
    /// any time: output that was not added yet is still in `outputs` then.
    pub async fn append(&mut self, outputs: &mut Vec<Output>) -> Result<(), AppendError> {
        delegate!(self, lease => lease.append(outputs).await)
    }

    /// Lets a full log drop its oldest events at once from now on, so that the worker's answer is read even if nobody reads
    /// the log.
    pub fn disable_backpressure(&mut self) {
        delegate!(self, lease => lease.disable_backpressure());
    }

    /// Adds the last output, regardless of the room, and ends the attempt. A cancel that was accepted before turns any
    /// ending into Cancelled. Returns the state that the query is in now.
    pub async fn finish(self, outputs: Vec<Output>, ending: Ending) -> Result<QueryState, LeaseLost> {
        delegate!(self, lease => lease.finish(outputs, ending).await)
    }

    /// Gives the query back as if it had never been claimed: no worker has seen it.
    pub async fn release(self) {
        delegate!(self, lease => lease.release().await);
    }

    /// The claimant is notified when this changes.
    #[must_use]
    pub fn status(&self) -> LeaseStatus {
        delegate!(self, lease => lease.status())
    }
}

/// State of an attempt as others decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStatus {
    Active,
    CancelRequested {
        reason: Arc<str>,
    },
    /// The lease lapsed: stop the worker, drop its output.
    Lost,
}

/// End of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The query is over; as a dead letter it is kept for a person to look at.
    Over { outcome: Outcome, dead_letter: bool },
    /// The query goes back to the queue after a delay.
    Retry(Retrying),
}

impl Ending {
    /// The query is over, and is no dead letter.
    #[must_use]
    pub fn plain(outcome: Outcome) -> Self {
        Self::Over { outcome, dead_letter: false }
    }
}

/// The attempts of a query so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttemptCounts {
    /// Number of the running attempt, from 1.
    pub attempt: u32,
    /// Earlier attempts that ended because the worker did.
    pub died: u32,
    /// Earlier attempts that ended with an error that the worker reported as retryable.
    pub reported: u32,
}
