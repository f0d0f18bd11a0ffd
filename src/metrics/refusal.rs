//! The reasons for which submits are refused, as a metric counts them.

use crate::state::named_enum;

named_enum! {
    /// Reason for which a submit was refused.
    pub enum RefusalReason {
        QueueFull => "queue_full",
        OwnerQueueFull => "owner_queue_full",
        /// No worker was ready, and the query asked not to wait.
        Busy => "busy",
        /// The server is stopping.
        Draining => "draining",
        /// An operator drained the pool.
        Drained => "drained",
        /// The kind's workers do not start.
        CircuitOpen => "circuit_open",
        /// The request is malformed, or no kind fits it.
        Invalid => "invalid",
        /// Another query has the id.
        Conflict => "conflict",
    }
}
