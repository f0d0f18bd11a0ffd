//! Why a query was not accepted, in the few words that a metric needs.

/// Why a submit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    QueueFull,
    OwnerQueueFull,
    /// No worker was ready, and the query asked not to wait.
    Busy,
    /// The server is stopping.
    Draining,
    /// Someone drained the pool by hand.
    Drained,
    /// The kind's workers do not start.
    CircuitOpen,
    /// The request makes no sense, or no kind fits it.
    Invalid,
    /// Its id is taken by another query.
    Conflict,
}

impl Refusal {
    pub const ALL: [Self; 8] = [
        Self::QueueFull,
        Self::OwnerQueueFull,
        Self::Busy,
        Self::Draining,
        Self::Drained,
        Self::CircuitOpen,
        Self::Invalid,
        Self::Conflict,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::OwnerQueueFull => "owner_queue_full",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::CircuitOpen => "circuit_open",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
        }
    }
}
