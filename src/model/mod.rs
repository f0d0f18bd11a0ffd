//! Plain data that every layer speaks: ids, queries, events and death certificates.

mod certificate;
mod event;
mod ids;
mod query;

pub use certificate::{DeathCause, DeathCertificate, Exit};
pub use event::{Event, EventBody, Failure, FailureReason, Outcome, RejectReason, Retrying, StopStage};
pub use ids::{InvalidQueryId, QueryId, WorkerId};
pub use query::{QueryOptions, QuerySpec};
