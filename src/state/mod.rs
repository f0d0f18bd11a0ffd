//! The state machines as pure tables of allowed transitions, with no I/O, no clock and no logging.

mod circuit;
mod connection;
mod machine;
#[cfg(test)]
mod matrix;
mod named;
mod pool;
mod query;
mod states;
mod worker;

use std::fmt::{self, Debug, Display};

use thiserror::Error;

pub use circuit::CircuitState;
pub use connection::ConnectionState;
pub(crate) use named::named_enum;

pub use machine::{StateMachine, Transition, TransitionError};
pub use pool::{Occupancy, PoolLifecycle};
pub use query::QueryState;
pub use worker::WorkerState;

/// The states of one machine and the moves between them; declared with `states!`, never by hand.
pub trait State: Copy + Eq + Debug + Display + Send + Sync + 'static {
    /// Name of the thing that has this state, for error texts.
    const MACHINE: &'static str;

    /// Every state, each at its own `index()`, so that per-state counters can be plain arrays.
    const STATES: &'static [Self];

    /// Every allowed transition. None leads from a state to itself.
    const TABLE: &'static [(Self, Self)];

    /// True if the table has this transition. Costs no search.
    #[must_use]
    fn allows(self, to: Self) -> bool;

    /// The number that stands for this state in an atomic.
    #[must_use]
    fn index(self) -> usize;

    /// The states that may follow this one; none if it is final.
    fn successors(self) -> impl Iterator<Item = Self> {
        Self::STATES.iter().copied().filter(move |to| self.allows(*to))
    }
}

/// A transition that the table does not have. It is a bug in the caller, not a race.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{} cannot go from {from} to {to}: {}", S::MACHINE, AllowedNext(*.from))]
pub struct IllegalTransition<S: State> {
    pub from: S,
    pub to: S,
}

/// Checks one transition against the table.
///
/// # Errors
/// `IllegalTransition` if the table does not have it.
pub fn transition<S: State>(from: S, to: S) -> Result<(), IllegalTransition<S>> {
    if from.allows(to) { Ok(()) } else { Err(IllegalTransition { from, to }) }
}

/// Lists the allowed transitions, so that the error text is enough to see the mistake.
struct AllowedNext<S>(S);

impl<S: State> Display for AllowedNext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed: Vec<_> = self.0.successors().map(|state| state.to_string()).collect();
        match allowed.as_slice() {
            [] => write!(f, "{} is final", self.0),
            allowed => write!(f, "allowed from {} are {}", self.0, allowed.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_transition_names_the_machine_both_states_and_the_way_out() {
        let error = transition(WorkerState::Ready, WorkerState::Loading).unwrap_err();
        assert_eq!(
            error.to_string(),
            "worker cannot go from ready to loading: \
             allowed from ready are processing, idle, evicting, failed"
        );
    }

    #[test]
    fn illegal_transition_out_of_a_final_state_says_that_it_is_final() {
        let error = transition(QueryState::Complete, QueryState::Cancelled).unwrap_err();
        assert_eq!(error.to_string(), "query cannot go from complete to cancelled: complete is final");
    }

    #[test]
    fn successors_are_the_states_that_the_table_lists() {
        let after_evicting: Vec<_> = WorkerState::Evicting.successors().collect();
        assert_eq!(after_evicting, [WorkerState::Dead, WorkerState::Failed]);
        assert_eq!(WorkerState::Dead.successors().count(), 0);
    }
}
