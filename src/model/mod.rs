//! Plain data that every layer speaks: ids, queries, events and death certificates.

mod certificate;
mod event;
mod fresh;
mod ids;
mod query;
mod stretch;

pub use certificate::{Certificate, DeathCause, Exit};
pub use event::{Event, EventBody, Failure, FailureReason, Outcome, RejectReason, Retrying, Rung};
pub use ids::{BadQueryId, QueryId, WorkerId};
pub use query::{QuerySpec, Terms};
pub use stretch::{Messages, Stretch};
