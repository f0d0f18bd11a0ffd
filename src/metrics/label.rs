//! The labels of metrics, and every value that each can take.

use crate::{
    config::Eviction,
    model::{DeathCause, FailureReason, RejectReason, StopStage},
    state::{QueryState, State, WorkerState},
};

use super::{refusal::RefusalReason, rpc::GRPC_CODES};

/// A label, or two that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricLabel {
    Version,
    Kind,
    WorkerState,
    Limit,
    /// Two labels, `from` and `to`.
    Transition,
    Cause,
    Strategy,
    Direction,
    QueryState,
    Type,
    Outcome,
    Failure,
    RetryReason,
    RefusalReason,
    Stage,
    Method,
    Code,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LabelValues {
    Fixed(Vec<Vec<&'static str>>),
    /// Values that the configuration or the API determines; the text describes them.
    Configured(&'static str),
}

/// Type of queries that have none.
pub(super) const NO_TYPE: &str = "none";
/// Type of queries whose type is not configured; method of calls whose method does not exist.
pub(super) const OTHER: &str = "other";

impl MetricLabel {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Version => &["version"],
            Self::Kind => &["kind"],
            Self::WorkerState | Self::QueryState => &["state"],
            Self::Limit => &["limit"],
            Self::Transition => &["from", "to"],
            Self::Cause => &["cause"],
            Self::Strategy => &["strategy"],
            Self::Direction => &["direction"],
            Self::Type => &["type"],
            Self::Outcome => &["outcome"],
            Self::Failure | Self::RetryReason | Self::RefusalReason => &["reason"],
            Self::Stage => &["stage"],
            Self::Method => &["method"],
            Self::Code => &["code"],
        }
    }

    pub(super) fn values(self) -> LabelValues {
        let values: Vec<&'static str> = match self {
            Self::Kind => return LabelValues::Configured("each kind"),
            Self::Type => return LabelValues::Configured("each configured type, `other`, `none`"),
            Self::Method => return LabelValues::Configured("each method, `other`"),
            Self::Transition => {
                let transitions = WorkerState::TABLE.iter().map(|(from, to)| vec![from.name(), to.name()]);
                return LabelValues::Fixed(transitions.collect());
            }
            Self::Version => vec![env!("CARGO_PKG_VERSION")],
            Self::WorkerState => WorkerState::ALL.map(WorkerState::name).to_vec(),
            Self::QueryState => QueryState::ALL.map(QueryState::name).to_vec(),
            Self::Outcome => {
                QueryState::ALL.into_iter().filter(|state| state.is_terminal()).map(QueryState::name).collect()
            }
            Self::Limit => vec!["min", "max"],
            Self::Direction => vec!["up", "down"],
            Self::Cause => DeathCause::ALL.map(DeathCause::name).to_vec(),
            Self::Strategy => Eviction::ALL.map(Eviction::name).to_vec(),
            Self::Failure => failures(),
            // A query is run again for these reasons only.
            Self::RetryReason => [FailureReason::WorkerDied, FailureReason::Reported].map(FailureReason::name).to_vec(),
            Self::RefusalReason => RefusalReason::ALL.map(RefusalReason::name).to_vec(),
            Self::Stage => StopStage::ALL.map(StopStage::name).to_vec(),
            Self::Code => GRPC_CODES.to_vec(),
        };
        LabelValues::Fixed(values.into_iter().map(|value| vec![value]).collect())
    }
}

/// Reasons for which queries end in an error or are rejected. A shutdown does both.
fn failures() -> Vec<&'static str> {
    let mut names = FailureReason::ALL.map(FailureReason::name).to_vec();
    let rejected = RejectReason::ALL.map(RejectReason::name);
    names.extend(rejected.into_iter().filter(|name| *name != FailureReason::Shutdown.name()));
    names
}
