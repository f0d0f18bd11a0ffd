//! The labels that metrics have, and every value that each can take.

use crate::{
    config::Eviction,
    model::{DeathCause, FailureReason, RejectReason, StopStage},
    state::{QueryState, State, WorkerState},
};

use super::{refusal::RefusalReason, rpc::CODES};

/// A label, or two that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Version,
    Kind,
    WorkerIs,
    Limit,
    /// Two labels: from which state to which.
    Move,
    Cause,
    Strategy,
    Direction,
    QueryIs,
    Type,
    Outcome,
    Failure,
    Retried,
    Refused,
    Stage,
    Method,
    Code,
}

/// What a label can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Values {
    Fixed(Vec<Vec<&'static str>>),
    /// Known only from the configuration or the API; the text says what they are.
    Known(&'static str),
}

/// The type of queries that have none, and of those whose type is not configured.
pub(super) const NO_TYPE: &str = "none";
pub(super) const OTHER: &str = "other";

pub(super) const LIMITS: [&str; 2] = ["min", "max"];
pub(super) const DIRECTIONS: [&str; 2] = ["up", "down"];

/// The reasons for which a query is run again.
pub(super) const RETRIED: [FailureReason; 2] = [FailureReason::WorkerDied, FailureReason::Reported];

impl Label {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Version => &["version"],
            Self::Kind => &["kind"],
            Self::WorkerIs | Self::QueryIs => &["state"],
            Self::Limit => &["limit"],
            Self::Move => &["from", "to"],
            Self::Cause => &["cause"],
            Self::Strategy => &["strategy"],
            Self::Direction => &["direction"],
            Self::Type => &["type"],
            Self::Outcome => &["outcome"],
            Self::Failure | Self::Retried | Self::Refused => &["reason"],
            Self::Stage => &["stage"],
            Self::Method => &["method"],
            Self::Code => &["code"],
        }
    }

    pub(super) fn values(self) -> Values {
        let outcomes = QueryState::ALL.iter().filter(|state| state.is_terminal());
        let words: Vec<&'static str> = match self {
            Self::Kind => return Values::Known("each kind"),
            Self::Type => return Values::Known("each configured type, `other`, `none`"),
            Self::Method => return Values::Known("each method, `other`"),
            Self::Move => {
                let moves = WorkerState::TABLE.iter().map(|(from, to)| vec![from.name(), to.name()]);
                return Values::Fixed(moves.collect());
            }
            Self::Version => vec![env!("CARGO_PKG_VERSION")],
            Self::WorkerIs => WorkerState::ALL.iter().map(|state| state.name()).collect(),
            Self::QueryIs => QueryState::ALL.iter().map(|state| state.name()).collect(),
            Self::Outcome => outcomes.map(|state| state.name()).collect(),
            Self::Limit => LIMITS.to_vec(),
            Self::Direction => DIRECTIONS.to_vec(),
            Self::Cause => DeathCause::ALL.iter().map(|cause| cause.name()).collect(),
            Self::Strategy => Eviction::ALL.iter().map(|strategy| strategy.name()).collect(),
            Self::Failure => failures(),
            Self::Retried => RETRIED.iter().map(|reason| reason.name()).collect(),
            Self::Refused => RefusalReason::ALL.iter().map(|refusal| refusal.name()).collect(),
            Self::Stage => StopStage::ALL.iter().map(|stage| stage.name()).collect(),
            Self::Code => CODES.to_vec(),
        };
        Values::Fixed(words.into_iter().map(|word| vec![word]).collect())
    }
}

/// Why queries end in an error or are rejected. A shutdown does both.
fn failures() -> Vec<&'static str> {
    let mut words: Vec<&'static str> = FailureReason::ALL.iter().map(|reason| reason.name()).collect();
    let rejected = RejectReason::ALL.iter().map(|reason| reason.name());
    words.extend(rejected.filter(|word| *word != FailureReason::Shutdown.name()));
    words
}
