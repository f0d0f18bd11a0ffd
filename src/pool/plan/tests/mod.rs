//! Tests of the plan, case by case.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod bounds;
mod eviction;
mod growth;
mod keys;
mod properties;
mod replacement;
mod shrinking;
mod simulation;
mod yielding;

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{DemandView, KindView, PoolView, StartHealth, Step, WorkerView, plan};
use crate::{
    config::{Config, ConfigSource, Eviction, KindConfig, Overrides},
    model::{DeathCause, WorkerId},
    state::WorkerState,
};

const MIB: u64 = 1 << 20;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A kind's configuration: these lines and the defaults.
fn config(name: &str, settings: &str) -> KindConfig {
    let text = format!("[pool]\nmax_workers = 1000\n[kinds.{name}]\ncommand = [\"w\"]\n{settings}\n");
    let source = ConfigSource::Text { name: "test".to_owned(), text, base_dir: PathBuf::new() };
    Config::load(source, [], &Overrides::default()).unwrap_or_else(|errors| panic!("{errors}")).kinds.remove(0)
}

/// A kind without workers and without demand.
fn kind(name: &str, settings: &str) -> KindView {
    let config = Arc::new(config(name, settings));
    KindView {
        kind: 0,
        floor: config.min,
        short_for: Duration::ZERO,
        shrink_to: None,
        removed: false,
        unfinished: 0,
        starts: StartHealth::Good,
        demand: DemandView::default(),
        ready: false,
        since_growth: None,
        quiet_for: None,
        peak_busy: 0,
        workers: Vec::new(),
        config,
    }
}

/// A pool of these kinds with more room than they need.
fn pool(kinds: impl IntoIterator<Item = KindView>) -> PoolView {
    let kinds = kinds.into_iter().enumerate().map(|(at, kind)| KindView { kind: at, ..kind });
    PoolView {
        max_workers: 1000,
        max_starting: 1000,
        memory_budget: None,
        eviction: Eviction::Lru,
        kinds: kinds.collect(),
    }
}

impl KindView {
    fn with(mut self, workers: impl IntoIterator<Item = WorkerView>) -> Self {
        let reserved = self.memory();
        self.workers.extend(workers.into_iter().map(|worker| WorkerView { reserved, ..worker }));
        self
    }

    /// So many queries wait, the oldest of them for so long.
    fn waiting(mut self, open: usize, oldest: Duration) -> Self {
        self.demand = DemandView { open, oldest: Some(oldest), lanes: Vec::new() };
        self
    }

    /// These keys wait and have no worker.
    fn keys(mut self, keys: &[&str], waited: Duration) -> Self {
        let lanes = keys.iter().map(|key| (Arc::from(*key), waited)).collect();
        self.demand = DemandView { open: keys.len(), oldest: Some(waited), lanes };
        self
    }
}

fn worker(id: u64, state: WorkerState) -> WorkerView {
    WorkerView {
        id: WorkerId(id),
        state,
        bound: false,
        wanted: false,
        drained: false,
        idle_for: Duration::ZERO,
        age: Duration::ZERO,
        queries: 0,
        rss: 0,
        reserved: 0,
        due: None,
        replaces: None,
    }
}

fn free(id: u64) -> WorkerView {
    worker(id, WorkerState::Ready)
}

fn busy(id: u64) -> WorkerView {
    worker(id, WorkerState::Processing)
}

fn starting(id: u64) -> WorkerView {
    worker(id, WorkerState::Spawning)
}

fn stopping(id: u64) -> WorkerView {
    worker(id, WorkerState::Evicting)
}

fn bound(worker: WorkerView) -> WorkerView {
    WorkerView { bound: true, ..worker }
}

fn idle_for(idle: f64, worker: WorkerView) -> WorkerView {
    WorkerView { idle_for: seconds(idle), ..worker }
}

/// Number of workers of each kind that are started.
fn grown(steps: &[Step], kind: usize) -> usize {
    let of_kind = |step: &Step| match step {
        Step::Grow { kind: grown, keys, .. } if *grown == kind => keys.len(),
        _ => 0,
    };
    steps.iter().map(of_kind).sum()
}

/// The keys that get a worker.
fn served(steps: &[Step]) -> Vec<String> {
    let keys = steps.iter().flat_map(|step| match step {
        Step::Grow { keys, .. } => keys.clone(),
        _ => Vec::new(),
    });
    keys.map(|key| key.map_or_else(|| "-".to_owned(), |key| key.to_string())).collect()
}

fn evicted(steps: &[Step]) -> Vec<u64> {
    let evicted = |step: &Step| match step {
        Step::Evict { worker, .. } => Some(worker.0),
        _ => None,
    };
    steps.iter().filter_map(evicted).collect()
}

fn shrunk(steps: &[Step]) -> Vec<(u64, DeathCause)> {
    let shrunk = steps.iter().flat_map(|step| match step {
        Step::Shrink { workers, cause, .. } => workers.iter().map(|worker| (worker.0, *cause)).collect(),
        _ => Vec::new(),
    });
    shrunk.collect()
}

fn retired(steps: &[Step]) -> Vec<(u64, DeathCause)> {
    let retired = steps.iter().flat_map(|step| match step {
        Step::Retire { workers, cause, .. } => workers.iter().map(|worker| (worker.0, *cause)).collect(),
        _ => Vec::new(),
    });
    retired.collect()
}

fn replaced(steps: &[Step]) -> Vec<u64> {
    let replaced = |step: &Step| match step {
        Step::Replace { worker, .. } => Some(worker.0),
        _ => None,
    };
    steps.iter().filter_map(replaced).collect()
}

/// The kinds that are asked to give way.
fn giving_way(steps: &[Step]) -> Vec<usize> {
    let asked = |step: &Step| match step {
        Step::RequestYield { kind, .. } => Some(*kind),
        _ => None,
    };
    steps.iter().filter_map(asked).collect()
}
