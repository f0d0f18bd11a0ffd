//! The circuit breaker of a kind.

/// State of the circuit breaker that guards a kind whose workers fail to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Workers do not start: queries of the kind fail at once.
    Open,
    /// One worker has started after the failures, but has yet to serve a query.
    HalfOpen,
    Closed,
}
