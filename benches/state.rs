//! Cost of one transition with its history, alone and contended, beside a bare compare-and-swap.
//!
//! Every row is one attempt to flip a state between `Ready` and `Processing`. Under contention some
//! attempts lose the race; they are counted like the others.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use divan::{Bencher, black_box};
use remuda::state::{StateMachine, WorkerState};

const THREADS: &[usize] = &[1, 2, 4];

/// A sample must last far longer than threads take to start, or they run one after the other.
const ATTEMPTS: u32 = 50_000;

fn main() {
    divan::main();
}

fn flip(state: WorkerState) -> WorkerState {
    match state {
        WorkerState::Ready => WorkerState::Processing,
        _ => WorkerState::Ready,
    }
}

/// Baseline: the least that any state shared between threads costs.
#[divan::bench(threads = THREADS, sample_size = ATTEMPTS)]
fn baseline_compare_exchange(bencher: Bencher) {
    let raw = AtomicU8::new(0);
    bencher.bench(|| {
        let from = raw.load(Ordering::Acquire);
        raw.compare_exchange(from, from ^ 1, Ordering::AcqRel, Ordering::Acquire)
    });
}

/// Baseline: the clock that the caller reads for each transition with history.
#[divan::bench]
fn baseline_instant_now() -> Instant {
    Instant::now()
}

#[divan::bench(threads = THREADS, sample_size = ATTEMPTS)]
fn transition_with_history(bencher: Bencher) {
    let machine = StateMachine::new(WorkerState::Ready);
    let at = Instant::now();
    bencher.bench(|| {
        let from = black_box(&machine).get();
        machine.advance(from, flip(from), at, "bench")
    });
}

/// As the pool calls it: the clock is read for each transition.
#[divan::bench(threads = THREADS, sample_size = ATTEMPTS)]
fn transition_with_history_and_clock(bencher: Bencher) {
    let machine = StateMachine::new(WorkerState::Ready);
    bencher.bench(|| {
        let from = black_box(&machine).get();
        machine.advance(from, flip(from), Instant::now(), "bench")
    });
}

/// The reason is built for each transition, as on the rare paths that quote an exit code.
#[divan::bench]
fn transition_with_owned_reason(bencher: Bencher) {
    let machine = StateMachine::new(WorkerState::Ready);
    let at = Instant::now();
    bencher.bench(|| {
        let from = black_box(&machine).get();
        machine.advance(from, flip(from), at, format!("exit code {}", black_box(7)))
    });
}
