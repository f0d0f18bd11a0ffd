//! A state and how it came about: the cell and its history, kept in step.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::time::Instant;

use super::{History, Refused, State, StateCell, Transition};
use crate::sync::Mutex;

/// A state with its history. Time and reason come from the caller, so the machine reads no clock.
///
/// Every move is made under the history's lock: the history lists moves in the order in which they
/// happened, whatever races. Reading the state takes no lock, so a reader may see a state an
/// instant before the history shows it.
#[derive(Debug)]
pub struct Machine<S: State> {
    cell: StateCell<S>,
    history: Mutex<History<S>>,
}

impl<S: State> Machine<S> {
    #[must_use]
    pub fn new(initial: S) -> Self {
        Self::from_parts(initial, History::default())
    }

    /// For a machine whose last `limit` moves are worth keeping instead of the default number.
    #[must_use]
    pub fn with_history_limit(initial: S, limit: NonZeroUsize) -> Self {
        Self::from_parts(initial, History::new(limit))
    }

    fn from_parts(initial: S, history: History<S>) -> Self {
        Self { cell: StateCell::new(initial), history: Mutex::new(history) }
    }

    /// The state at this instant, without waiting for anyone.
    #[must_use]
    pub fn get(&self) -> S {
        self.cell.get()
    }

    /// Moves only if the state is still `from`; a refused move leaves no trace in the history.
    ///
    /// # Errors
    /// As for [`StateCell::advance`].
    pub fn advance(&self, from: S, to: S, at: Instant, reason: impl Into<Cow<'static, str>>) -> Result<(), Refused<S>> {
        let reason = reason.into();
        let mut history = self.history.lock();
        self.cell.advance(from, to)?;
        history.push(Transition { from, to, at, reason });
        Ok(())
    }

    /// Moves from whatever state it is in, if the table allows, and gives that state back.
    ///
    /// # Errors
    /// As for [`StateCell::advance_to`].
    pub fn advance_to(&self, to: S, at: Instant, reason: impl Into<Cow<'static, str>>) -> Result<S, Refused<S>> {
        let reason = reason.into();
        let mut history = self.history.lock();
        let from = self.cell.advance_to(to)?;
        history.push(Transition { from, to, at, reason });
        Ok(from)
    }

    /// The moves that are still kept, from oldest to newest.
    #[must_use]
    pub fn history(&self) -> Vec<Transition<S>> {
        self.history.lock().iter().cloned().collect()
    }

    /// How many moves are no longer in the history.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.history.lock().dropped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::state::WorkerState::{self, Dead, Evicting, Failed, Idle, Processing, Ready, Spawning};
    use crate::state::transition;

    /// Every move is legal and starts where the one before it ended; the last one ends at the state.
    #[track_caller]
    fn assert_unbroken_chain(machine: &Machine<WorkerState>, initial: WorkerState) {
        let mut state = initial;
        for step in machine.history() {
            assert_eq!(step.from, state, "the chain has a gap");
            assert_eq!(transition(step.from, step.to), Ok(()));
            state = step.to;
        }
        assert_eq!(machine.get(), state);
    }

    #[test]
    fn a_move_is_kept_with_its_time_and_reason() {
        let machine = Machine::new(Ready);
        let at = Instant::now();
        machine.advance(Ready, Processing, at, "query dispatched").unwrap();
        machine.advance_to(Failed, at, format!("exit code {}", 7)).unwrap();

        let dispatched = Transition { from: Ready, to: Processing, at, reason: "query dispatched".into() };
        let crashed = Transition { from: Processing, to: Failed, at, reason: "exit code 7".into() };
        assert_eq!(machine.history(), [dispatched, crashed]);
        assert_eq!(machine.get(), Failed);
    }

    #[test]
    fn a_refused_move_leaves_no_trace() {
        let machine = Machine::new(Spawning);
        let at = Instant::now();
        assert!(machine.advance(Ready, Processing, at, "lost").is_err());
        assert!(machine.advance_to(Dead, at, "illegal").is_err());
        assert_eq!(machine.get(), Spawning);
        assert_eq!(machine.history(), []);
    }

    #[test]
    fn advance_to_gives_back_where_it_came_from() {
        let machine = Machine::new(Idle);
        assert_eq!(machine.advance_to(Evicting, Instant::now(), "idle too long"), Ok(Idle));
    }

    #[test]
    fn only_the_last_moves_are_kept_and_the_rest_are_counted() {
        let machine = Machine::with_history_limit(Ready, NonZeroUsize::new(2).unwrap());
        let at = Instant::now();
        for to in [Processing, Ready, Idle, Ready, Evicting] {
            machine.advance_to(to, at, "step").unwrap();
        }
        let kept: Vec<_> = machine.history().iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(kept, [(Idle, Ready), (Ready, Evicting)]);
        assert_eq!(machine.dropped(), 3);
    }

    #[test]
    fn end_of_query_stop_and_crash_racing_leave_an_unbroken_history() {
        const ROUNDS: usize = 2_000;
        let machines: Vec<_> = (0..ROUNDS).map(|_| Machine::new(Processing)).collect();
        let endings = [Ready, Ready, Evicting, Evicting, Evicting, Failed, Failed, Failed];
        let barrier = Barrier::new(endings.len());
        let won = AtomicUsize::new(0);

        let race = |to| {
            for machine in &machines {
                barrier.wait();
                let outcome = match to {
                    Ready => machine.advance(Processing, to, Instant::now(), "query ended").is_ok(),
                    _ => machine.advance_to(to, Instant::now(), "stopped").is_ok(),
                };
                won.fetch_add(usize::from(outcome), Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for to in endings {
                scope.spawn(move || race(to));
            }
        });

        for machine in &machines {
            assert_unbroken_chain(machine, Processing);
            // Nothing that the racers do leads out of Failed, and one of them always gets there.
            assert_eq!(machine.get(), Failed);
        }
        let recorded: usize = machines.iter().map(|machine| machine.history().len()).sum();
        assert_eq!(recorded, won.load(Ordering::Relaxed));
    }

    #[test]
    fn the_history_is_in_the_order_of_the_moves_under_a_long_race() {
        const STEPS: usize = 20_000;
        const THREADS: usize = 8;
        let room_for_all = NonZeroUsize::new(STEPS * THREADS).unwrap();
        let machine = Machine::with_history_limit(Ready, room_for_all);

        thread::scope(|scope| {
            for to in [Processing, Ready, Idle, Ready, Processing, Ready, Idle, Ready] {
                let machine = &machine;
                scope.spawn(move || {
                    for _ in 0..STEPS {
                        // A refusal is expected: most steps find a state that does not lead to `to`.
                        let _ = machine.advance_to(to, Instant::now(), "race");
                    }
                });
            }
        });

        assert!(!machine.history().is_empty());
        assert_unbroken_chain(&machine, Ready);
    }
}
