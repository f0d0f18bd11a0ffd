//! One state in one atomic: every change is a single compare-and-swap that the table has allowed.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use thiserror::Error;

use super::{IllegalTransition, State, transition};
use crate::sync::AtomicU8;

/// Why a cell kept its state. The two cases ask for different answers: a bug is reported, a lost
/// race is often just news.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refused<S: State> {
    /// The table has no such move.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition<S>),

    /// The move is allowed, but someone else moved first.
    #[error("{} did not go from {from} to {to}: it is {actual}", S::MACHINE)]
    LostRace { from: S, to: S, actual: S },
}

/// A state shared between threads. Reading it never waits.
pub struct StateCell<S> {
    raw: AtomicU8,
    _state: PhantomData<S>,
}

impl<S: State> StateCell<S> {
    #[must_use]
    pub fn new(initial: S) -> Self {
        Self { raw: AtomicU8::new(encode(initial)), _state: PhantomData }
    }

    /// The state at this instant; another thread may change it before the caller looks at it.
    #[must_use]
    pub fn get(&self) -> S {
        decode(self.raw.load(Ordering::Acquire))
    }

    /// Moves only if the state is still `from`. Of several racing callers exactly one succeeds.
    ///
    /// # Errors
    /// `Illegal` if the table has no such move, whatever the state is; `LostRace` if it is not `from`.
    pub fn advance(&self, from: S, to: S) -> Result<(), Refused<S>> {
        transition(from, to)?;
        self.swap(from, to).map_err(|actual| Refused::LostRace { from, to, actual })
    }

    /// Moves from whatever state it is in, if the table allows, and gives that state back. For
    /// moves that must happen however the races went, such as a worker's to `Failed`.
    ///
    /// # Errors
    /// `Illegal` if the table has no move from the present state; never `LostRace`.
    pub fn advance_to(&self, to: S) -> Result<S, Refused<S>> {
        let mut from = self.get();
        loop {
            transition(from, to)?;
            match self.swap(from, to) {
                Ok(()) => return Ok(from),
                Err(actual) => from = actual,
            }
        }
    }

    /// On failure the error is the state that was there instead.
    fn swap(&self, from: S, to: S) -> Result<(), S> {
        self.raw
            .compare_exchange(encode(from), encode(to), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(decode)
    }
}

impl<S: State> fmt::Debug for StateCell<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateCell").field(&self.get()).finish()
    }
}

fn encode<S: State>(state: S) -> u8 {
    u8::try_from(state.index()).expect("a machine has at most 32 states")
}

fn decode<S: State>(raw: u8) -> S {
    S::from_index(usize::from(raw)).expect("a cell holds only what encode gave it")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::state::WorkerState::{self, Dead, Evicting, Failed, Idle, Loading, Processing, Ready};

    #[test]
    fn an_allowed_move_changes_the_state() {
        let cell = StateCell::new(Ready);
        assert_eq!(cell.advance(Ready, Processing), Ok(()));
        assert_eq!(cell.get(), Processing);
    }

    #[test]
    fn an_illegal_move_is_told_apart_from_a_lost_race() {
        let cell = StateCell::new(Evicting);
        let illegal = Refused::Illegal(IllegalTransition { from: Ready, to: Dead });
        let lost = Refused::LostRace { from: Ready, to: Processing, actual: Evicting };

        assert_eq!(cell.advance(Ready, Dead), Err(illegal));
        assert_eq!(cell.advance(Ready, Processing), Err(lost));
        assert_eq!(cell.get(), Evicting);
    }

    #[test]
    fn a_lost_race_says_what_was_wanted_and_what_is() {
        let refused = StateCell::new(Evicting).advance(Ready, Processing).unwrap_err();
        assert_eq!(refused.to_string(), "worker did not go from ready to processing: it is evicting");
    }

    #[test]
    fn an_illegal_move_keeps_its_own_text() {
        let refused = StateCell::new(Failed).advance(Failed, Ready).unwrap_err();
        assert_eq!(refused.to_string(), "worker cannot go from failed to ready: allowed from failed are dead");
    }

    #[test]
    fn advance_to_starts_from_whatever_state_allows_it() {
        for from in [Loading, Ready, Processing, Idle, Evicting] {
            let cell = StateCell::new(from);
            assert_eq!(cell.advance_to(Failed), Ok(from));
            assert_eq!(cell.get(), Failed);
        }
    }

    #[test]
    fn advance_to_is_refused_where_the_table_has_no_move() {
        let cell = StateCell::new(Dead);
        let illegal = IllegalTransition { from: Dead, to: Failed };
        assert_eq!(cell.advance_to(Failed), Err(Refused::Illegal(illegal)));
    }

    #[test]
    fn debug_shows_the_state_by_name() {
        let cell = StateCell::<WorkerState>::new(Ready);
        assert_eq!(format!("{cell:?}"), "StateCell(Ready)");
    }

    #[test]
    fn eight_threads_reserving_one_worker_have_one_winner_in_every_round() {
        const ROUNDS: usize = 3_000;
        const THREADS: usize = 8;
        let cell = StateCell::new(Ready);
        let barrier = Barrier::new(THREADS);
        let winners: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();

        let race = || {
            for round in &winners {
                barrier.wait();
                let won = cell.advance(Ready, Processing).is_ok();
                barrier.wait();
                if won {
                    round.fetch_add(1, Ordering::Relaxed);
                    // A second winner would be refused here; a panic would leave the others waiting.
                    let _ = cell.advance(Processing, Ready);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(race);
            }
        });

        assert!(winners.iter().all(|round| round.load(Ordering::Relaxed) == 1));
    }
}
