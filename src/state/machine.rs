//! A state shared between threads, with the history of how it came about.

use std::{borrow::Cow, collections::VecDeque, fmt, marker::PhantomData, sync::atomic::Ordering, time::Instant};

use thiserror::Error;

use super::{IllegalTransition, State, transition};
use crate::sync::{AtomicU8, Mutex};

/// Transitions that each machine keeps: a whole troubled life (start, some queries, stop) in about 1.5 KiB.
const HISTORY_LIMIT: usize = 32;

/// The reason why a machine kept its state. An illegal transition is a bug, a lost race often just news.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TransitionError<S: State> {
    #[error(transparent)]
    Illegal(#[from] IllegalTransition<S>),

    /// The transition is allowed, but another one came first.
    #[error("{} did not go from {from} to {to}: it is {actual}", S::MACHINE)]
    LostRace { from: S, to: S, actual: S },
}

/// One transition that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition<S> {
    pub from: S,
    pub to: S,
    /// Time at which the caller decided on it. Callers that race may record these slightly out of order.
    pub at: Instant,
    /// Borrowed on the common paths, so that recording does not allocate.
    pub reason: Cow<'static, str>,
}

/// A state and its last transitions. Time and reason come from the caller, so the machine reads no clock.
///
/// Every transition is made under the history's lock, so the history lists them in the order in which they happened. Reading
/// the state takes no lock; a reader may see a state an instant before the history shows it.
pub struct StateMachine<S: State> {
    /// Index of the state. Written only under the lock.
    state: AtomicU8,
    history: Mutex<VecDeque<Transition<S>>>,
    _state: PhantomData<S>,
}

impl<S: State> StateMachine<S> {
    #[must_use]
    pub fn new(initial: S) -> Self {
        Self { state: AtomicU8::new(encode(initial)), history: Mutex::new(VecDeque::new()), _state: PhantomData }
    }

    /// The state at this instant; another thread may change it before the caller looks at it.
    #[must_use]
    pub fn get(&self) -> S {
        S::STATES[usize::from(self.state.load(Ordering::Acquire))]
    }

    /// Moves only if the state is still `from`. Of several racing callers exactly one succeeds.
    ///
    /// # Errors
    /// `Illegal` if the table has no such transition, whatever the state is; `LostRace` if the state is not `from`.
    pub fn advance(
        &self,
        from: S,
        to: S,
        at: Instant,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<(), TransitionError<S>> {
        let reason = reason.into();
        transition(from, to)?;
        let mut history = self.history.lock();
        let actual = self.get();
        if actual != from {
            return Err(TransitionError::LostRace { from, to, actual });
        }
        self.record(&mut history, Transition { from, to, at, reason });
        Ok(())
    }

    /// Moves from any state that allows it, and returns that state. For transitions that must happen however the races went,
    /// such as a worker's to `Failed`.
    ///
    /// # Errors
    /// `Illegal` if the table has no transition from the present state; never `LostRace`.
    pub fn advance_to(
        &self,
        to: S,
        at: Instant,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<S, TransitionError<S>> {
        let reason = reason.into();
        let mut history = self.history.lock();
        let from = self.get();
        transition(from, to)?;
        self.record(&mut history, Transition { from, to, at, reason });
        Ok(from)
    }

    fn record(&self, history: &mut VecDeque<Transition<S>>, transition: Transition<S>) {
        self.state.store(encode(transition.to), Ordering::Release);
        // Dropped before the push, so that the buffer does not grow past the limit.
        if history.len() == HISTORY_LIMIT {
            history.pop_front();
        }
        history.push_back(transition);
    }

    /// The last transitions, from oldest to newest.
    #[must_use]
    pub fn history(&self) -> Vec<Transition<S>> {
        self.history.lock().iter().cloned().collect()
    }
}

impl<S: State> fmt::Debug for StateMachine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateMachine").field(&self.get()).finish()
    }
}

fn encode<S: State>(state: S) -> u8 {
    u8::try_from(state.index()).expect("a machine has fewer than 256 states")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::state::WorkerState::{self, Dead, Evicting, Failed, Idle, Loading, Processing, Ready, Spawning};

    /// Every transition is legal and starts where the one before it ended; the last one ends at the state.
    #[track_caller]
    fn assert_unbroken_chain(machine: &StateMachine<WorkerState>, initial: WorkerState) {
        let mut state = initial;
        for step in machine.history() {
            assert_eq!(step.from, state, "the chain has a gap");
            assert_eq!(transition(step.from, step.to), Ok(()));
            state = step.to;
        }
        assert_eq!(machine.get(), state);
    }

    #[test]
    fn transition_is_kept_with_its_time_and_reason() {
        let machine = StateMachine::new(Ready);
        let at = Instant::now();
        machine.advance(Ready, Processing, at, "query dispatched").unwrap();
        machine.advance_to(Failed, at, format!("exit code {}", 7)).unwrap();

        let dispatched = Transition { from: Ready, to: Processing, at, reason: "query dispatched".into() };
        let crashed = Transition { from: Processing, to: Failed, at, reason: "exit code 7".into() };
        assert_eq!(machine.history(), [dispatched, crashed]);
        assert_eq!(machine.get(), Failed);
    }

    #[test]
    fn refused_transition_leaves_no_trace() {
        let machine = StateMachine::new(Spawning);
        let at = Instant::now();
        assert!(machine.advance(Ready, Processing, at, "lost").is_err());
        assert!(machine.advance_to(Dead, at, "illegal").is_err());
        assert_eq!(machine.get(), Spawning);
        assert_eq!(machine.history(), []);
    }

    #[test]
    fn advance_to_returns_the_state_it_left() {
        let machine = StateMachine::new(Idle);
        assert_eq!(machine.advance_to(Evicting, Instant::now(), "idle too long"), Ok(Idle));
    }

    #[test]
    fn illegal_transition_is_told_apart_from_a_lost_race() {
        let machine = StateMachine::new(Evicting);
        let illegal = TransitionError::Illegal(IllegalTransition { from: Ready, to: Dead });
        let lost = TransitionError::LostRace { from: Ready, to: Processing, actual: Evicting };

        assert_eq!(machine.advance(Ready, Dead, Instant::now(), "illegal"), Err(illegal));
        assert_eq!(
            illegal.to_string(),
            "worker cannot go from ready to dead: allowed from ready are processing, idle, evicting, failed"
        );
        assert_eq!(machine.advance(Ready, Processing, Instant::now(), "lost"), Err(lost));
        assert_eq!(lost.to_string(), "worker did not go from ready to processing: it is evicting");
        assert_eq!(machine.get(), Evicting);
    }

    #[test]
    fn advance_to_starts_from_any_state_that_allows_it() {
        for from in [Loading, Ready, Processing, Idle, Evicting] {
            let machine = StateMachine::new(from);
            assert_eq!(machine.advance_to(Failed, Instant::now(), "crashed"), Ok(from));
            assert_eq!(machine.get(), Failed);
        }
        let illegal = IllegalTransition { from: Dead, to: Failed };
        let dead = StateMachine::new(Dead);
        assert_eq!(dead.advance_to(Failed, Instant::now(), "crashed"), Err(TransitionError::Illegal(illegal)));
    }

    #[test]
    fn debug_shows_the_state_by_name() {
        assert_eq!(format!("{:?}", StateMachine::<WorkerState>::new(Ready)), "StateMachine(Ready)");
    }

    #[test]
    fn history_keeps_the_last_transitions_and_stops_growing() {
        let machine = StateMachine::new(Ready);
        assert_eq!(machine.history.lock().capacity(), 0);
        let at = Instant::now();
        for _ in 0..1_000 {
            machine.advance(Ready, Processing, at, "dispatched").unwrap();
            machine.advance(Processing, Ready, at, "done").unwrap();
        }
        let kept: Vec<_> = machine.history().iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(kept, [(Ready, Processing), (Processing, Ready)].repeat(HISTORY_LIMIT / 2));
        assert!(machine.history.lock().capacity() < 2 * HISTORY_LIMIT);
    }

    #[test]
    fn eight_threads_reserving_one_worker_have_one_winner_in_every_round() {
        const ROUNDS: usize = 3_000;
        const THREADS: usize = 8;
        let machine = StateMachine::new(Ready);
        let barrier = Barrier::new(THREADS);
        let winners: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();

        let race = || {
            for round in &winners {
                barrier.wait();
                let won = machine.advance(Ready, Processing, Instant::now(), "reserved").is_ok();
                barrier.wait();
                if won {
                    round.fetch_add(1, Ordering::Relaxed);
                    // A second winner would be refused here; a panic would leave the others waiting.
                    let _ = machine.advance(Processing, Ready, Instant::now(), "released");
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

    #[test]
    fn end_of_query_stop_and_crash_racing_leave_an_unbroken_history() {
        const ROUNDS: usize = 2_000;
        let machines: Vec<_> = (0..ROUNDS).map(|_| StateMachine::new(Processing)).collect();
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
    fn history_is_in_the_order_of_the_transitions_under_a_race() {
        const ROUNDS: usize = 5_000;
        let targets = [Processing, Ready, Idle, Ready, Processing, Ready, Idle, Ready];
        let machines: Vec<_> = (0..ROUNDS).map(|_| StateMachine::new(Ready)).collect();
        let barrier = Barrier::new(targets.len());

        let race = |to| {
            for machine in &machines {
                barrier.wait();
                for _ in 0..HISTORY_LIMIT / targets.len() {
                    // A refusal is expected: most steps find a state that does not lead to `to`.
                    let _ = machine.advance_to(to, Instant::now(), "race");
                }
            }
        };
        thread::scope(|scope| {
            for to in targets {
                scope.spawn(move || race(to));
            }
        });

        for machine in &machines {
            assert!(!machine.history().is_empty());
            assert_unbroken_chain(machine, Ready);
        }
    }
}
