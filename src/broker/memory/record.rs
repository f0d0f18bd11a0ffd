//! What is known of one query of the memory broker, as plain data.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::watch;

use crate::{
    broker::{FailedAttempt, LeaseLost, Order, Tries},
    model::{Failure, QueryId, QuerySpec, WorkerId},
    state::QueryState,
};

use super::{
    log::{Log, LogLimits},
    queue::Ticket,
    readers::Readers,
    tally::KindTally,
};

/// Everything fixed about a query when it arrives.
#[derive(Debug)]
pub(super) struct Arrival {
    pub id: QueryId,
    /// Order of arrival, never reused.
    pub number: u64,
    pub spec: QuerySpec,
    /// The client's own deadline.
    pub deadline: Option<Instant>,
    pub abandon_after: Option<Duration>,
    pub requeued_from: Option<QueryId>,
    /// Queries that must reach the same worker share one.
    pub lane: Option<Arc<str>>,
    pub tally: Arc<KindTally>,
    pub limits: LogLimits,
}

#[derive(Debug)]
pub(super) struct Record {
    pub state: QueryState,
    pub log: Log,
    pub tries: Tries,
    pub failures: Vec<FailedAttempt>,
    pub holder: Option<Holder>,
    /// Where it stood in line when it was claimed last.
    pub ticket: Ticket,
    pub cancel: Option<Arc<str>>,
    pub retry_at: Option<Instant>,
    pub dead_letter: bool,
    pub requeued_as: Option<QueryId>,
    pub worker: Option<WorkerId>,
    pub readers: Readers,
    pub started_at: Option<SystemTime>,
    pub ended_at: Option<SystemTime>,
}

/// Who runs the query now. The token is what fences off everyone who ran it before.
#[derive(Debug)]
pub(super) struct Holder {
    pub token: u64,
    pub orders: watch::Sender<Order>,
}

/// What a claimant gets.
#[derive(Debug)]
pub(super) struct Held {
    pub token: u64,
    pub tries: Tries,
    pub orders: watch::Receiver<Order>,
}

/// What became of a query whose attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finished {
    Over(QueryState),
    RetryAt(Instant),
}

/// What became of a query that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released {
    Waiting,
    Ended,
    NotOurs,
}

/// Whether output may push out events that a reader still wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Respect,
    Ignore,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            state: QueryState::Pending,
            log: Log::default(),
            tries: Tries::default(),
            failures: Vec::new(),
            holder: None,
            ticket: Ticket::default(),
            cancel: None,
            retry_at: None,
            dead_letter: false,
            requeued_as: None,
            worker: None,
            readers: Readers::default(),
            started_at: None,
            ended_at: None,
        }
    }

    pub(super) fn check(&self, token: u64) -> Result<(), LeaseLost> {
        match &self.holder {
            Some(holder) if holder.token == token => Ok(()),
            _ => Err(LeaseLost),
        }
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        self.failures.push(FailedAttempt { attempt: self.tries.attempt, at: SystemTime::now(), failure });
    }
}
