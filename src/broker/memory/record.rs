//! What is known of one query of the memory broker, as plain data.

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
    log::Log,
    queue::Ticket,
    readers::{Readers, Wakers},
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
    /// Boxed because few have any.
    pub extras: Option<Box<Extras>>,
    /// Queries that must reach the same worker share one.
    pub lane: Option<Arc<str>>,
    pub tally: Arc<KindTally>,
}

/// What few queries have, in one place, so that the others pay for none of it.
#[derive(Debug)]
pub(super) struct Extras {
    pub requeued_from: Option<QueryId>,
    /// Until it ends.
    pub trace: Mutex<Option<Box<QueryTrace>>>,
}

/// What changes about a query. One that only waits has no story yet, which keeps a long queue small.
#[derive(Debug)]
pub(super) struct Record {
    pub state: QueryState,
    story: Option<Box<Story>>,
}

/// What has happened to a query since it arrived.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub log: Log,
    pub attempts: AttemptCounts,
    pub failures: Vec<FailedAttempt>,
    pub holder: Option<Holder>,
    /// Where it stood in line when it was claimed last.
    pub ticket: Ticket,
    pub cancel: Option<Box<Cancelling>>,
    pub retry_at: Option<Instant>,
    pub dead_letter: bool,
    pub requeued_as: Option<QueryId>,
    pub worker: Option<WorkerId>,
    pub readers: Readers,
    /// Wakes whoever waits for readers to come along, if anybody ever did.
    pub room: Option<Arc<Notify>>,
    pub started_at: Option<SystemTime>,
    pub ended_at: Option<SystemTime>,
}

/// Who runs the query now. The token is what fences off everyone who ran it before.
#[derive(Debug)]
pub(super) struct Holder {
    pub token: u64,
    pub notify: Option<Arc<Notify>>,
}

/// A cancel that was accepted while a worker had the query.
#[derive(Debug)]
pub(super) struct Cancelling {
    pub reason: Arc<str>,
    pub since: Instant,
}

/// What a claimant gets.
#[derive(Debug)]
pub(super) struct Held {
    pub token: u64,
    pub attempts: AttemptCounts,
    pub trace: Option<TraceLink>,
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

impl Extras {
    pub(super) fn new(requeued_from: Option<QueryId>, trace: Option<Box<QueryTrace>>) -> Option<Box<Self>> {
        let any = requeued_from.is_some() || trace.is_some();
        any.then(|| Box::new(Self { requeued_from, trace: Mutex::new(trace) }))
    }
}

impl Record {
    pub(super) fn new() -> Self {
        Self { state: QueryState::Pending, story: None }
    }

    pub(super) fn story(&self) -> Option<&Story> {
        self.story.as_deref()
    }

    pub(super) fn story_mut(&mut self) -> &mut Story {
        self.story.get_or_insert_default()
    }

    pub(super) fn attempt(&self) -> u32 {
        self.story().map_or(0, |story| story.attempts.attempt)
    }

    pub(super) fn is_dead_letter(&self) -> bool {
        self.story().is_some_and(|story| story.dead_letter)
    }

    pub(super) fn check(&self, token: u64) -> Result<(), LeaseLost> {
        match self.story().and_then(|story| story.holder.as_ref()) {
            Some(holder) if holder.token == token => Ok(()),
            _ => Err(LeaseLost),
        }
    }

    /// Those to be woken because there is something new, once the record is free.
    pub(super) fn call_readers(&mut self) -> Wakers {
        self.story.as_mut().map(|story| story.readers.call()).unwrap_or_default()
    }

    /// Who waits for readers to come along.
    pub(super) fn room(&self) -> Option<Arc<Notify>> {
        self.story()?.room.clone()
    }
}

impl Story {
    pub(super) fn failed(&mut self, failure: Failure) {
        self.failures.push(FailedAttempt { attempt: self.attempts.attempt, at: SystemTime::now(), failure });
    }
}
