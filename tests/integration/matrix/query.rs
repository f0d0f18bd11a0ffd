//! The query of a row: how it is asked, and whether its events are the expected ones.

use std::path::Path;

use remuda::api::proto::{
    DeathCause, ErrorReason, Event, Query, RecoveryPolicy, RecoveryStrategy, RetryingEvent, StopStage, event::Body,
};
use serde_json::{Value, json};

use crate::harness;

use super::{
    scripts,
    table::{Cell, Phase, Policy, Row},
};

/// The query that the worker misbehaves under.
pub(super) fn provoking(row: &Row, gate: &Path) -> Query {
    // It must not be over before the drain has begun.
    let seconds = if row.phase == Phase::WhileDraining { 2 } else { 0 };
    let limit = prost_types::Duration { seconds, nanos: 700_000_000 };
    let timeout = (row.cell == Cell::TimesOut).then_some(limit);
    Query { timeout, ..with_policy(row, &scripts::payload(row, gate)) }
}

/// A query that nothing is wrong with.
pub(super) fn harmless(row: &Row) -> Query {
    with_policy(row, &json!({"steps": ["nonce"], "nonce": scripts::nonce(row)}))
}

fn with_policy(row: &Row, payload: &Value) -> Query {
    let recovery = match row.policy {
        Policy::Reject => RecoveryPolicy { strategy: RecoveryStrategy::Reject.into(), attempts: 0 },
        Policy::Retry => RecoveryPolicy { strategy: RecoveryStrategy::Retry.into(), attempts: 1 },
    };
    Query { kind: row.kind().to_owned(), recovery: Some(recovery), ..harness::query(payload) }
}

/// The events of a query, sorted by what they tell.
struct Log<'a> {
    row: &'a Row,
    messages: usize,
    retries: Vec<&'a RetryingEvent>,
    last: &'a Event,
}

/// Checks the events of the query that the worker misbehaved under.
#[track_caller]
pub(super) fn check_provoking(row: &Row, events: &[Event]) {
    let log = Log::new(row, events);
    let attempts = if row.is_retried() { 2 } else { 1 };
    assert_eq!(log.last.attempt, attempts, "{row:?}: {events:?}");
    assert_eq!(log.messages, scripts::messages_per_attempt(row.phase) * attempts as usize, "{row:?}: {events:?}");
    match row.cell {
        Cell::Dies(cause) if row.is_retried() => log.is_second_attempt(cause),
        Cell::Dies(cause) => log.is_error(ErrorReason::WorkerDied, cause),
        Cell::TimesOut => log.is_error(ErrorReason::TimedOut, DeathCause::Timeout),
        Cell::CutShort => log.is_error(ErrorReason::Shutdown, DeathCause::Shutdown),
        Cell::Cancelled => log.is_cancelled(),
        Cell::Harmless | Cell::Ends(_) => log.is_first_attempt(scripts::own_result(row)),
        Cell::Senseless(reason) => panic!("{row:?} is run although {reason}"),
    }
}

/// Checks the events of a query that nothing was wrong with.
#[track_caller]
pub(super) fn check_harmless(row: &Row, events: &[Event]) {
    let log = Log::new(row, events);
    assert_eq!((log.last.attempt, log.messages), (1, 0), "{row:?}: {events:?}");
    log.is_first_attempt(None);
}

impl<'a> Log<'a> {
    /// There is one terminal event, and it is the last of a log without holes.
    #[track_caller]
    fn new(row: &'a Row, events: &'a [Event]) -> Self {
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert!(sequences.iter().copied().eq(0..events.len() as u64), "{row:?}: {sequences:?}");
        let ends: Vec<_> = events.iter().filter(|event| is_terminal(event)).collect();
        assert_eq!(ends.len(), 1, "{row:?}: {events:?}");
        let last = events.last().expect("there is one");
        assert!(is_terminal(last), "{row:?}: {events:?}");
        let retrying = |event: &'a Event| match &event.body {
            Some(Body::Retrying(retrying)) => Some(retrying),
            _ => None,
        };
        Self {
            row,
            messages: events.iter().filter(|event| matches!(event.body, Some(Body::Message(_)))).count(),
            retries: events.iter().filter_map(retrying).collect(),
            last,
        }
    }

    #[track_caller]
    fn result(&self) -> Value {
        match &self.last.body {
            Some(Body::Complete(complete)) => serde_json::from_str(&complete.result).expect("a result is JSON"),
            other => panic!("{:?}: not complete but {other:?}", self.row),
        }
    }

    #[track_caller]
    fn is_first_attempt(&self, own_result: Option<&str>) {
        let result = self.result();
        let Some(own) = own_result else {
            assert_eq!(result["nonce"], json!(scripts::nonce(self.row)), "{:?}", self.row);
            return assert!(self.retries.is_empty(), "{:?}: {:?}", self.row, self.retries);
        };
        assert_eq!(result, json!(own), "{:?}", self.row);
        assert!(self.retries.is_empty(), "{:?}: {:?}", self.row, self.retries);
    }

    #[track_caller]
    fn is_second_attempt(&self, cause: DeathCause) {
        let row = self.row;
        let [retrying] = self.retries.as_slice() else { panic!("{row:?}: not one retry but {:?}", self.retries) };
        assert_eq!((retrying.failed_attempt, retrying.max_attempts), (1, 2), "{row:?}: {retrying:?}");
        let certificate = retrying.certificate.as_ref().expect("the worker's certificate");
        assert_eq!(certificate.cause(), cause, "{row:?}: {certificate:?}");
        let result = self.result();
        assert_eq!(result["nonce"], json!(scripts::nonce(row)), "{row:?}");
        assert_ne!(result["worker"], json!(certificate.worker_id), "{row:?}: another worker runs it");
    }

    #[track_caller]
    fn is_error(&self, reason: ErrorReason, cause: DeathCause) {
        let row = self.row;
        let Some(Body::Error(error)) = &self.last.body else { panic!("{row:?}: not an error but {:?}", self.last) };
        assert_eq!(error.reason(), reason, "{row:?}: {error:?}");
        let certificate = error.certificate.as_ref().unwrap_or_else(|| panic!("{row:?}: no certificate: {error:?}"));
        assert_eq!(certificate.cause(), cause, "{row:?}: {certificate:?}");
        assert!(self.retries.is_empty(), "{row:?}: {:?}", self.retries);
    }

    #[track_caller]
    fn is_cancelled(&self) {
        let row = self.row;
        match &self.last.body {
            Some(Body::Cancelled(cancelled)) => {
                assert_eq!(cancelled.stage(), StopStage::Sigterm, "{row:?}: {cancelled:?}");
            }
            other => panic!("{row:?}: not cancelled but {other:?}"),
        }
        assert!(self.retries.is_empty(), "{row:?}: {:?}", self.retries);
    }
}

fn is_terminal(event: &Event) -> bool {
    matches!(event.body, Some(Body::Complete(_) | Body::Error(_) | Body::Cancelled(_) | Body::Rejected(_)))
}
