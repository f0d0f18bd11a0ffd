//! The life of one query, from submission to its one terminal state.

use super::states::states;

states! {
    /// Phase in the life of a query. Further messages while `Streaming` are not transitions.
    pub enum QueryState as "query" {
        /// It waits for a worker.
        Pending => "pending",
        /// A worker has it and has sent no message yet.
        Processing => "processing",
        /// The worker sends messages.
        Streaming => "streaming",
        /// An attempt failed; it waits out its backoff before it queues again.
        RetryPending => "retry_pending",
        /// It ended with a result.
        Complete => "complete",
        /// It ended in failure, with no attempt left.
        Error => "error",
        /// Someone called it off.
        Cancelled => "cancelled",
        /// It was refused before a worker took it.
        Rejected => "rejected",
    }
    allowed {
        Pending      => Processing | Cancelled | Rejected,
        // Straight to Complete: a worker may have a result and nothing to say before it.
        Processing   => Streaming | RetryPending | Complete | Error | Cancelled,
        Streaming    => RetryPending | Complete | Error | Cancelled,
        RetryPending => Pending | Cancelled,
    }
}

impl QueryState {
    /// True once the query is over. It reaches exactly one such state, whatever races.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Error | Self::Cancelled | Self::Rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::QueryState::{self, Cancelled, Complete, Error, Processing, Rejected};
    use crate::state::matrix::assert_transitions;
    use crate::state::{State, StateMachine};

    #[test]
    fn query_transitions_are_as_drawn() {
        assert_transitions::<QueryState>(
            "
                          pending processing streaming retry_pending complete error cancelled rejected
            pending          .        x          .           .          .       .       x        x
            processing       .        .          x           x          x       x       x        .
            streaming        .        .          .           x          x       x       x        .
            retry_pending    x        .          .           .          .       .       x        .
            complete         .        .          .           .          .       .       .        .
            error            .        .          .           .          .       .       .        .
            cancelled        .        .          .           .          .       .       .        .
            rejected         .        .          .           .          .       .       .        .
            ",
        );
    }

    #[test]
    fn terminal_states_are_those_without_a_way_out() {
        for state in QueryState::ALL {
            let terminal = [Complete, Error, Cancelled, Rejected].contains(&state);
            assert_eq!(state.is_terminal(), terminal, "{state}");
            assert_eq!(state.successors().next().is_none(), terminal, "{state}");
        }
    }

    #[test]
    fn completion_and_cancel_racing_leave_one_terminal_state() {
        for _ in 0..500 {
            let machine = StateMachine::new(Processing);
            let outcomes = std::thread::scope(|scope| {
                let (machine, at) = (&machine, std::time::Instant::now());
                let racers =
                    [Complete, Cancelled, Error].map(|to| scope.spawn(move || machine.advance_to(to, at, "race")));
                racers.map(|racer| racer.join().expect("no racer panics"))
            });
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
            assert!(machine.get().is_terminal());
        }
    }
}
