//! The life of one worker process, from its start until it is reaped.

use super::states::states;

states! {
    /// Phase in the life of a worker.
    pub enum WorkerState as "worker" {
        /// The process was started; it has not connected yet.
        Spawning => "spawning",
        /// It has connected; its `ready` has not come, as while a model loads.
        Loading => "loading",
        /// It can take a query.
        Ready => "ready",
        /// It runs exactly one query.
        Processing => "processing",
        /// It has had no query for a while. It can still take one, by way of `Ready`.
        Idle => "idle",
        /// Its stop was requested; it finishes or is being stopped.
        Evicting => "evicting",
        /// It is reaped, its memory and socket are released, its certificate is written.
        Dead => "dead",
        /// It crashed, hung, broke the protocol or did not start; its resources are still held.
        Failed => "failed",
    }
    allowed {
        Spawning   => Loading | Evicting | Failed,
        Loading    => Ready | Evicting | Failed,
        Ready      => Processing | Idle | Evicting | Failed,
        // A query error that the worker reports leads to Ready too: the worker itself is fine.
        Processing => Ready | Evicting | Failed,
        Idle       => Ready | Evicting | Failed,
        Evicting   => Failed | Dead,
        Failed     => Dead,
    }
}

impl WorkerState {
    /// True while it is meant to go on working: neither stopping nor stopped.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Spawning | Self::Loading | Self::Ready | Self::Processing | Self::Idle)
    }

    /// True once it is ready, until it stops or fails.
    #[must_use]
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Ready | Self::Processing | Self::Idle)
    }

    /// True if dispatch may choose it. An idle worker is first moved to `Ready`.
    #[must_use]
    pub const fn can_take_query(self) -> bool {
        matches!(self, Self::Ready | Self::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerState::{self, Evicting, Failed, Idle, Loading, Processing, Ready, Spawning};
    use crate::state::State;
    use crate::state::matrix::assert_transitions;

    #[track_caller]
    fn assert_holds_only_for(predicate: fn(WorkerState) -> bool, expected: &[WorkerState]) {
        for state in WorkerState::ALL {
            assert_eq!(predicate(state), expected.contains(&state), "{state}");
        }
    }

    #[test]
    fn worker_transitions_are_as_drawn() {
        assert_transitions::<WorkerState>(
            "
                        spawning loading ready processing idle evicting failed dead
            spawning        .       x      .       .        .      x       x     .
            loading         .       .      x       .        .      x       x     .
            ready           .       .      .       x        x      x       x     .
            processing      .       .      x       .        .      x       x     .
            idle            .       .      x       .        .      x       x     .
            evicting        .       .      .       .        .      .       x     x
            failed          .       .      .       .        .      .       .     x
            dead            .       .      .       .        .      .       .     .
            ",
        );
    }

    #[test]
    fn worker_is_live_until_it_stops_or_fails() {
        assert_holds_only_for(WorkerState::is_live, &[Spawning, Loading, Ready, Processing, Idle]);
    }

    #[test]
    fn worker_is_healthy_once_ready_and_until_it_stops_or_fails() {
        assert_holds_only_for(WorkerState::is_healthy, &[Ready, Processing, Idle]);
    }

    #[test]
    fn query_is_taken_only_by_a_ready_or_idle_worker() {
        assert_holds_only_for(WorkerState::can_take_query, &[Ready, Idle]);
    }

    #[test]
    fn live_worker_can_be_stopped_and_can_fail() {
        for state in WorkerState::ALL.iter().filter(|state| state.is_live()) {
            let next: Vec<_> = state.successors().collect();
            assert!(next.contains(&Evicting) && next.contains(&Failed), "{state}");
        }
    }
}
