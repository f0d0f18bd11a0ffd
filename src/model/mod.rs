//! Plain data that every layer speaks: ids, queries, events and death certificates.

mod certificate;
mod event;
mod fresh;
mod ids;
mod query;

pub use certificate::{DeathCause, DeathCertificate, Exit};
pub use event::{Event, EventBody, Failure, FailureReason, Outcome, RejectReason, Retrying, StopStage};
pub use ids::{BadQueryId, QueryId, WorkerId};
pub use query::{QuerySpec, Terms};
