//! Cost of reserving a ready worker and giving it back, by the size of the pool.
//!
//! The figures must not grow with the number of workers but for the depth of a tree; the baseline is a bare queue of the
//! same length behind a lock. No query is counted here, so to `least_loaded` all workers are alike.

use std::{collections::VecDeque, path::PathBuf, sync::Mutex};

use divan::{Bencher, black_box};
use remuda::{
    config::{Config, ConfigSource, KindConfig, Overrides},
    pool::bench_support::ReadyWorkersBench,
};

const WORKERS: &[u64] = &[10, 100, 1_000];

fn main() {
    divan::main();
}

fn kind(balance: &str) -> KindConfig {
    let text = format!("[kinds.k]\ncommand = [\"w\"]\nbalance = \"{balance}\"\n");
    let source = ConfigSource::Text { name: "bench".to_owned(), text, base_dir: PathBuf::new() };
    Config::load(source, [], &Overrides::default()).expect("the config is right").kinds.remove(0)
}

/// Baseline: the least that any queue shared between threads costs.
#[divan::bench(args = WORKERS)]
fn baseline_queue_behind_a_lock(bencher: Bencher, workers: u64) {
    let queue: Mutex<VecDeque<u64>> = Mutex::new((1..=workers).collect());
    bencher.bench(|| {
        let mut queue = black_box(&queue).lock().expect("nobody panics");
        let first = queue.pop_front().expect("it is never empty");
        queue.push_back(first);
        first
    });
}

#[divan::bench(args = WORKERS)]
fn round_robin(bencher: Bencher, workers: u64) {
    let bench = ReadyWorkersBench::new(kind("round_robin"), workers);
    bencher.bench(|| black_box(&bench).reserve_and_give_back());
}

#[divan::bench(args = WORKERS)]
fn least_loaded(bencher: Bencher, workers: u64) {
    let bench = ReadyWorkersBench::new(kind("least_loaded"), workers);
    bencher.bench(|| black_box(&bench).reserve_and_give_back());
}

#[divan::bench(args = WORKERS)]
fn most_recent(bencher: Bencher, workers: u64) {
    let bench = ReadyWorkersBench::new(kind("most_recent"), workers);
    bencher.bench(|| black_box(&bench).reserve_and_give_back());
}
