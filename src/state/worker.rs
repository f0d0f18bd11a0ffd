//! The life of one worker process, from fork to reaped.

use super::states::states;

states! {
    /// Where a worker is in its life. The numbers are fixed: what they mean to others must not shift.
    pub enum WorkerState as "worker" {
        /// The process is forked; it has not connected yet.
        Spawning = 0 => "spawning",
        /// It has connected; its `ready` has not come, as while a model loads.
        Loading = 1 => "loading",
        /// It can take a query.
        Ready = 2 => "ready",
        /// It runs exactly one query.
        Processing = 3 => "processing",
        /// It has had no query for a while. It can still take one, by way of `Ready`.
        Idle = 4 => "idle",
        /// Its stop was requested; it finishes or is being stopped.
        Evicting = 5 => "evicting",
        /// It is reaped, its memory and socket are released, its certificate is written.
        Dead = 6 => "dead",
        /// It crashed, hung, broke the protocol or did not start; its resources are still held.
        Failed = 7 => "failed",
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
    /// Whether it is meant to go on working: neither stopping nor stopped.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Spawning | Self::Loading | Self::Ready | Self::Processing | Self::Idle)
    }

    /// Whether it started well and nothing is wrong with it, as health reports ask.
    #[must_use]
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Ready | Self::Processing | Self::Idle)
    }

    /// Whether dispatch may choose it. An idle worker is first moved to `Ready`.
    #[must_use]
    pub const fn can_take_query(self) -> bool {
        matches!(self, Self::Ready | Self::Idle)
    }

    /// Whether only a new process can take its place.
    #[must_use]
    pub const fn requires_restart(self) -> bool {
        matches!(self, Self::Failed | Self::Dead)
    }

    /// The coarser word of five that clients of the older protocol know.
    #[must_use]
    pub const fn seed_word(self) -> &'static str {
        match self {
            Self::Spawning | Self::Loading => "STARTING",
            Self::Ready | Self::Idle => "READY",
            Self::Processing => "BUSY",
            Self::Evicting => "SHUTTING_DOWN",
            Self::Failed | Self::Dead => "DEAD",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerState::{self, Dead, Evicting, Failed, Idle, Loading, Processing, Ready, Spawning};
    use crate::state::State;
    use crate::state::matrix::assert_transitions;

    #[track_caller]
    fn assert_holds_only_for(predicate: fn(WorkerState) -> bool, expected: &[WorkerState]) {
        for &state in WorkerState::ALL {
            assert_eq!(predicate(state), expected.contains(&state), "{state}");
        }
    }

    #[test]
    fn every_pair_of_worker_states_is_allowed_or_refused_as_drawn() {
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
    fn numbers_stay_as_they_were_published() {
        let in_order = [Spawning, Loading, Ready, Processing, Idle, Evicting, Dead, Failed];
        for (number, state) in in_order.into_iter().enumerate() {
            assert_eq!(state.index(), number);
        }
    }

    #[test]
    fn a_worker_is_live_until_it_stops_or_fails() {
        assert_holds_only_for(WorkerState::is_live, &[Spawning, Loading, Ready, Processing, Idle]);
    }

    #[test]
    fn a_worker_is_healthy_once_ready_and_until_it_stops_or_fails() {
        assert_holds_only_for(WorkerState::is_healthy, &[Ready, Processing, Idle]);
    }

    #[test]
    fn only_a_ready_or_idle_worker_can_take_a_query() {
        assert_holds_only_for(WorkerState::can_take_query, &[Ready, Idle]);
    }

    #[test]
    fn only_a_failed_or_dead_worker_requires_a_restart() {
        assert_holds_only_for(WorkerState::requires_restart, &[Failed, Dead]);
    }

    #[test]
    fn eight_states_map_onto_five_older_words() {
        let words = WorkerState::ALL.iter().map(|state| state.seed_word());
        let expected = ["STARTING", "STARTING", "READY", "BUSY", "READY", "SHUTTING_DOWN", "DEAD", "DEAD"];
        assert!(words.eq(expected));
    }

    #[test]
    fn from_every_live_state_a_worker_can_be_stopped_and_can_fail() {
        for state in WorkerState::ALL.iter().filter(|state| state.is_live()) {
            let next: Vec<_> = state.successors().collect();
            assert!(next.contains(&Evicting) && next.contains(&Failed), "{state}");
        }
    }
}
