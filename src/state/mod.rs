//! The state machines as pure tables: what may follow what, with no I/O, no clock and no logging.

mod cell;
mod circuit;
mod connection;
mod history;
mod machine;
#[cfg(test)]
mod matrix;
mod pool;
mod query;
mod states;
mod worker;

use std::fmt::{self, Debug, Display};

use thiserror::Error;

pub use cell::{Refused, StateCell};
pub use circuit::CircuitState;
pub use connection::ConnectionState;
pub use history::{DEFAULT_HISTORY_LIMIT, History, Transition};
pub use machine::Machine;
pub use pool::{Occupancy, PoolLifecycle};
pub use query::QueryState;
pub use worker::WorkerState;

/// The states of one machine and the moves between them; declared with `states!`, never by hand.
pub trait State: Copy + Eq + Debug + Display + Send + Sync + 'static {
    /// What error texts call the thing that has this state.
    const MACHINE: &'static str;

    /// Every state, each at its own `index()`, so that per-state counters can be plain arrays.
    const ALL: &'static [Self];

    /// Every allowed move. A state never moves to itself.
    const TABLE: &'static [(Self, Self)];

    /// `TABLE` as one word for each state, bit `to` of word `from`, so that a check costs no search.
    const MASKS: &'static [u32];

    /// The `snake_case` word used for metric labels, log fields and error texts.
    #[must_use]
    fn name(self) -> &'static str;

    /// The number that stands for this state in an atomic.
    #[must_use]
    fn index(self) -> usize;

    /// `None` for a number that stands for no state.
    #[must_use]
    fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// The states that may follow this one; none if it is final.
    fn successors(self) -> impl Iterator<Item = Self> {
        let mask = Self::MASKS[self.index()];
        Self::ALL.iter().copied().filter(move |to| mask & (1 << to.index()) != 0)
    }
}

/// A move that the table does not have. It is a bug in the caller, not a race.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{} cannot go from {from} to {to}: {}", S::MACHINE, WayOut(*.from))]
pub struct IllegalTransition<S: State> {
    pub from: S,
    pub to: S,
}

/// Checks one move against the table, in constant time.
///
/// # Errors
/// `IllegalTransition` if the table has no such move.
pub fn transition<S: State>(from: S, to: S) -> Result<(), IllegalTransition<S>> {
    if S::MASKS[from.index()] & (1 << to.index()) == 0 {
        return Err(IllegalTransition { from, to });
    }
    Ok(())
}

/// Spells out what would have been allowed, so that the error text is enough to see the mistake.
struct WayOut<S>(S);

impl<S: State> Display for WayOut<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed: Vec<_> = self.0.successors().map(S::name).collect();
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
    fn an_illegal_transition_names_the_machine_both_states_and_the_way_out() {
        let error = transition(WorkerState::Ready, WorkerState::Loading).unwrap_err();
        assert_eq!(
            error.to_string(),
            "worker cannot go from ready to loading: \
             allowed from ready are processing, idle, evicting, failed"
        );
    }

    #[test]
    fn an_illegal_transition_out_of_a_final_state_says_that_it_is_final() {
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
