//! What operators are told, as JSON.

use serde::Serialize;

use super::{Certificate, owned, text};
use crate::{
    api::proto::{self, pool_event::Body},
    cli::words,
};

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Scaled<'a> {
    kind: &'a str,
    from: u32,
    to: u32,
}

impl<'a> From<&'a proto::ScaleKindResponse> for Scaled<'a> {
    fn from(scaled: &'a proto::ScaleKindResponse) -> Self {
        Self { kind: &scaled.kind, from: scaled.from, to: scaled.to }
    }
}

/// What was done; `worker_id` is null if it was done to the whole pool.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Done {
    pub done: &'static str,
    pub worker_id: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Reload<'a> {
    changes: Vec<Change<'a>>,
    applied: bool,
}

#[derive(Debug, Serialize)]
struct Change<'a> {
    path: &'a str,
    old: Option<&'a str>,
    new: Option<&'a str>,
    effect: String,
}

impl<'a> From<&'a proto::ReloadResponse> for Reload<'a> {
    fn from(found: &'a proto::ReloadResponse) -> Self {
        let change = |change: &'a proto::ConfigChange| Change {
            path: &change.path,
            old: change.old.as_deref(),
            new: change.new.as_deref(),
            effect: words::config_effect(change.effect),
        };
        Self { changes: found.changes.iter().map(change).collect(), applied: found.applied }
    }
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct PoolEvent<'a> {
    sequence: u64,
    at: Option<String>,
    name: &'a str,
    kind: Option<&'a str>,
    #[serde(flatten)]
    body: Option<EventBody<'a>>,
}

/// The name says which of them it is.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EventBody<'a> {
    Moved {
        worker_id: u64,
        from: Option<String>,
        to: String,
        reason: &'a str,
        query_id: Option<&'a str>,
        key: Option<&'a str>,
    },
    Ended {
        worker_id: Option<u64>,
        certificate: Option<Certificate<'a>>,
    },
    Scaled {
        from: u32,
        to: u32,
        reason: &'a str,
    },
    Evicted {
        worker_id: u64,
        strategy: &'a str,
        reason: &'a str,
    },
    Circuit {
        state: String,
        reason: &'a str,
    },
    Pool {
        state: &'a str,
        reason: &'a str,
    },
    Reloaded {
        changes: &'a [String],
    },
    Missed {
        missed: u64,
    },
}

impl<'a> From<&'a proto::PoolEvent> for PoolEvent<'a> {
    fn from(event: &'a proto::PoolEvent) -> Self {
        Self {
            sequence: event.sequence,
            at: owned(words::time(event.at.as_ref())),
            name: &event.name,
            kind: text(&event.kind),
            body: event.body.as_ref().map(EventBody::from),
        }
    }
}

impl<'a> From<&'a Body> for EventBody<'a> {
    fn from(body: &'a Body) -> Self {
        match body {
            Body::WorkerMoved(moved) => Self::Moved {
                worker_id: moved.worker_id,
                from: (moved.from() != proto::WorkerState::Unspecified).then(|| words::worker_state(moved.from)),
                to: words::worker_state(moved.to),
                reason: &moved.reason,
                query_id: text(&moved.query_id),
                key: text(&moved.key),
            },
            Body::WorkerEnded(ended) => Self::Ended {
                worker_id: ended.certificate.as_ref().map(|end| end.worker_id),
                certificate: ended.certificate.as_ref().map(Certificate::from),
            },
            Body::Scaled(scaled) => Self::Scaled { from: scaled.from, to: scaled.to, reason: &scaled.reason },
            Body::Evicted(evicted) => {
                Self::Evicted { worker_id: evicted.worker_id, strategy: &evicted.strategy, reason: &evicted.reason }
            }
            Body::Circuit(circuit) => {
                Self::Circuit { state: words::circuit_state(circuit.state), reason: &circuit.reason }
            }
            Body::Pool(pool) => Self::Pool { state: &pool.state, reason: &pool.reason },
            Body::Reloaded(reloaded) => Self::Reloaded { changes: &reloaded.changes },
            Body::Missed(missed) => Self::Missed { missed: missed.count },
        }
    }
}
