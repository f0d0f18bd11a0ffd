//! The data of one query of the memory broker.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::Notify;

use crate::{
    broker::{AttemptCounts, FailedAttempt, LeaseLost},
    model::{Failure, QueryId, QuerySpec, WorkerId},
    state::QueryState,
    sync::Mutex,
    trace::{QueryTrace, TraceLink},
};

use super::{
    kind_state::KindState,
    log::EventLog,
    queue::RankTag,
    readers::{Readers, Wakers},
};

/// The part of a query that does not change after its arrival.
#[derive(Debug)]
pub(super) struct QueryMeta {
    pub id: QueryId,
    /// Arrival number, never reused.
    pub number: u64,
    pub spec: QuerySpec,
    /// The client's own deadline.
    pub deadline: Option<Instant>,
    pub abandon_after: Option<Duration>,
    pub rare: Option<Box<RareMeta>>,
    pub lane: Option<Arc<str>>,
    pub kind_state: Arc<KindState>,
}

/// Data that few queries have, boxed so that the others do not pay for it.
#[derive(Debug)]
pub(super) struct RareMeta {
    pub requeued_from: Option<QueryId>,
    /// Taken when the query ends.
    pub trace: Mutex<Option<Box<QueryTrace>>>,
}

/// The part of a query that changes. A query that only waits has no [`RunState`] yet, which keeps a long queue small.
#[derive(Debug)]
pub(super) struct Record {
    pub state: QueryState,
    run: Option<Box<RunState>>,
}

/// State of a query that was claimed, read, cancelled or ended.
#[derive(Debug, Default)]
pub(super) struct RunState {
    pub log: EventLog,
    pub attempts: AttemptCounts,
    pub failures: Vec<FailedAttempt>,
    pub holder: Option<LeaseHolder>,
    /// Rank and tag when it was claimed last.
    pub rank_tag: RankTag,
    pub cancel: Option<Box<PendingCancel>>,
    pub retry_at: Option<Instant>,
    pub dead_letter: bool,
    pub requeued_as: Option<QueryId>,
    pub worker: Option<WorkerId>,
    pub readers: Readers,
    /// Notified when a reader has made progress; set once a lease has waited for that.
    pub room: Option<Arc<Notify>>,
    pub started_at: Option<SystemTime>,
    pub ended_at: Option<SystemTime>,
}

/// Holder of the current lease. The token fences off those who held it before.
#[derive(Debug)]
pub(super) struct LeaseHolder {
    pub token: u64,
    pub notify: Option<Arc<Notify>>,
}

/// A cancel that was accepted while a worker had the query.
#[derive(Debug)]
pub(super) struct PendingCancel {
    pub reason: Arc<str>,
    pub since: Instant,
}

/// Result of a claim.
#[derive(Debug)]
pub(super) struct Grant {
    pub token: u64,
    pub attempts: AttemptCounts,
    pub trace: Option<Box<TraceLink>>,
}

/// State of a query whose attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FinishResult {
    Over(QueryState),
    RetryAt(Instant),
}

/// State of a query that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReleaseResult {
    Waiting,
    Ended,
    LeaseLost,
}

/// Treatment of output for which a log has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backpressure {
    /// It waits until the readers have read on.
    Apply,
    /// It pushes out the oldest events.
    Ignore,
}

impl RareMeta {
    pub(super) fn new(requeued_from: Option<QueryId>, trace: Option<Box<QueryTrace>>) -> Option<Box<Self>> {
        let any = requeued_from.is_some() || trace.is_some();
        any.then(|| Box::new(Self { requeued_from, trace: Mutex::new(trace) }))
    }
}

impl Record {
    pub(super) fn new() -> Self {
        Self { state: QueryState::Pending, run: None }
    }

    pub(super) fn run(&self) -> Option<&RunState> {
        self.run.as_deref()
    }

    pub(super) fn run_mut(&mut self) -> &mut RunState {
        self.run.get_or_insert_default()
    }

    pub(super) fn attempt(&self) -> u32 {
        self.run().map_or(0, |run| run.attempts.attempt)
    }

    pub(super) fn is_dead_letter(&self) -> bool {
        self.run().is_some_and(|run| run.dead_letter)
    }

    pub(super) fn check(&self, token: u64) -> Result<(), LeaseLost> {
        match self.run().and_then(|run| run.holder.as_ref()) {
            Some(holder) if holder.token == token => Ok(()),
            _ => Err(LeaseLost),
        }
    }

    /// The readers that wait for events, to be woken once the lock is free.
    pub(super) fn take_wakers(&mut self) -> Wakers {
        self.run.as_mut().map(|run| run.readers.take_wakers()).unwrap_or_default()
    }

    pub(super) fn room(&self) -> Option<Arc<Notify>> {
        self.run()?.room.clone()
    }
}

impl RunState {
    pub(super) fn record_failure(&mut self, failure: Failure) {
        self.failures.push(FailedAttempt { attempt: self.attempts.attempt, at: SystemTime::now(), failure });
    }
}
