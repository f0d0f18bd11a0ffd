//! What is known about a worker: what it told, what was measured, and how its queries went.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    model::{DeathCause, QueryId, WorkerId},
    state::WorkerState,
};

use super::{
    PoolWorker,
    usage::{Reading, Sample},
};

/// What the worker said of itself in `ready`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    pub name: Option<String>,
    pub version: Option<String>,
    pub capabilities: Vec<String>,
    /// Whether it sends heartbeats.
    pub heartbeats: bool,
}

/// A worker as it is at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub id: WorkerId,
    pub kind: Arc<str>,
    pub state: WorkerState,
    pub pid: Option<u32>,
    pub query: Option<QueryId>,
    pub queries_processed: u64,
    pub started_at: SystemTime,
    pub uptime: Duration,
    /// Since it was last given or last finished a query.
    pub idle_for: Duration,
    pub peak_rss: Option<u64>,
    pub usage: Option<Sample>,
    /// How long ago it last said anything.
    pub last_heard: Duration,
    pub introduction: Introduction,
    /// The key it is bound to.
    pub key: Option<Arc<str>>,
    /// It takes no queries because someone said so.
    pub drained: bool,
    /// Set aside for it out of the memory budget.
    pub reserved: u64,
}

/// The few facts about a worker that are looked at most often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    pub state: WorkerState,
    pub drained: bool,
    /// How long ago it last said anything.
    pub silence: Duration,
    /// Since it was started.
    pub age: Duration,
    /// Since it was last given or last finished a query.
    pub idle_for: Duration,
    pub queries_processed: u64,
    /// As last measured.
    pub rss: Option<u64>,
    pub reserved: u64,
    /// Why it is to be replaced.
    pub due: Option<DeathCause>,
}

impl PoolWorker {
    /// Costs no allocation, as a snapshot does.
    pub fn glance(&self, now: Instant) -> Glance {
        let inner = self.lock.lock();
        let since = |then: Instant| now.saturating_duration_since(then);
        let age = since(self.created);
        Glance {
            state: self.state(),
            drained: inner.drained,
            silence: since(inner.last_heard),
            age,
            idle_for: since(inner.last_activity),
            queries_processed: inner.queries_processed,
            rss: inner.usage.latest().map(|sample| sample.rss),
            reserved: self.kind.memory.unwrap_or(0),
            due: inner.due.or_else(|| self.wear.due(inner.dispatched, age, None)),
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let inner = self.lock.lock();
        let uptime = self.created.elapsed();
        let usage = inner.usage.latest();
        Snapshot {
            id: self.id,
            kind: self.kind.name.clone(),
            state: self.state(),
            pid: inner.pid,
            query: inner.current_task.clone(),
            queries_processed: inner.queries_processed,
            started_at: self.created_at,
            uptime,
            idle_for: inner.last_activity.elapsed(),
            peak_rss: inner.usage.peak_rss,
            usage,
            last_heard: inner.last_heard.elapsed(),
            introduction: inner.introduction.clone(),
            key: self.key().cloned(),
            drained: inner.drained,
            reserved: self.kind.memory.unwrap_or(0),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.lock.lock().current_task.is_some() || self.state() == WorkerState::Processing
    }

    /// The query it runs.
    pub(super) fn query(&self) -> Option<QueryId> {
        self.lock.lock().current_task.clone()
    }

    /// Whether it takes no queries because someone said so.
    pub fn is_drained(&self) -> bool {
        self.lock.lock().drained
    }

    /// Whether it has finished a query.
    pub fn has_served(&self) -> bool {
        self.lock.lock().queries_processed > 0
    }

    /// Marks the worker idle if it has had no query for as long as its kind says.
    pub fn mark_idle(&self, now: Instant) {
        let inner = self.lock.lock();
        if now.duration_since(inner.last_activity) >= self.kind.idle_after {
            let _ = self.step(WorkerState::Ready, WorkerState::Idle, "no query for a while");
        }
    }

    /// How many queries it was given.
    pub fn dispatched(&self) -> u64 {
        self.lock.lock().dispatched
    }

    /// The key it is bound to.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.key.get()
    }

    /// Binds it to a key for the rest of its life.
    pub fn bind(&self, key: Arc<str>) {
        // It is bound already if it was started for the key.
        let _ = self.key.set(key);
    }

    /// It is to be replaced when a replacement is ready.
    pub fn is_due(&self, cause: DeathCause) {
        self.lock.lock().due.get_or_insert(cause);
    }

    /// Whether its kind's configuration has changed since it was started. True if it had, and the change was taken back.
    pub fn set_outdated(&self, outdated: bool) -> bool {
        let mut inner = self.lock.lock();
        if outdated {
            inner.due.get_or_insert(DeathCause::Reloaded);
            return false;
        }
        inner.due.take_if(|cause| *cause == DeathCause::Reloaded).is_some()
    }

    /// For benchmarks, which have no processes.
    pub(crate) fn pretend_to_be_ready(&self) {
        let _ = self.step_to(WorkerState::Loading, "pretended", None);
        self.introduced(Introduction::default());
    }

    pub(super) fn set_pid(&self, pid: u32) {
        self.lock.lock().pid = Some(pid);
    }

    /// Whether the query that it was given last is one more than it should get.
    pub fn has_had_its_queries(&self) -> bool {
        self.kind.max_queries.is_some() && self.wear.due(self.dispatched(), Duration::ZERO, None).is_some()
    }

    /// Takes note of what it uses. Once too large it is due for good, or it would come to stand beside its replacement.
    pub(super) fn measured(&self, reading: Reading) {
        let mut inner = self.lock.lock();
        inner.usage.add(reading, Instant::now());
        let worn = self.wear.due(0, Duration::ZERO, Some(reading.rss));
        inner.due = inner.due.or(worn);
    }

    pub(super) fn heard(&self, now: Instant) {
        self.lock.lock().last_heard = now;
    }

    pub(super) fn sends_heartbeats(&self) -> bool {
        self.lock.lock().introduction.heartbeats
    }

    /// Its last uses of resources, oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.lock.lock().usage.samples()
    }

    /// It answered a query as it should.
    pub fn succeeded(&self) {
        let mut inner = self.lock.lock();
        inner.failures = None;
        inner.last_success = Some(Instant::now());
    }

    /// It failed a query. Says how many in a row that makes, and since when.
    pub fn failed(&self) -> (u32, Instant) {
        let mut inner = self.lock.lock();
        let (count, since) = inner.failures.unwrap_or((0, Instant::now()));
        *inner.failures.insert((count + 1, since))
    }

    /// Whether it has answered a query as it should since then.
    pub fn succeeded_since(&self, then: Instant) -> bool {
        self.lock.lock().last_success.is_some_and(|at| at >= then)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{
        config::{Config, Overrides, Source},
        metrics::Metrics,
        worker::Birth,
    };

    fn worker(settings: &str) -> PoolWorker {
        let text = format!("[kinds.k]\ncommand = [\"w\"]\n{settings}\n");
        let source = Source::Text { name: "test".to_owned(), text, base_dir: PathBuf::new() };
        let kind = Config::load(source, [], &Overrides::default()).unwrap().kinds.remove(0);
        PoolWorker::new(Birth {
            id: WorkerId(1),
            slot: 0,
            metrics: Metrics::new().kind("k"),
            kind: Arc::new(kind),
            key: None,
            observer: Arc::new(()),
        })
    }

    fn reading(mib: u64) -> Reading {
        Reading { rss: mib << 20, peak_rss: mib << 20, cpu_seconds: 0.0 }
    }

    #[test]
    fn a_worker_that_was_once_too_large_is_due_for_good() {
        let worker = worker("memory_soft = \"10MiB\"");
        worker.measured(reading(10));
        assert_eq!(worker.glance(Instant::now()).due, None);
        worker.measured(reading(11));
        worker.measured(reading(1));
        assert_eq!(worker.glance(Instant::now()).due, Some(DeathCause::RecycledMemory));
    }

    #[test]
    fn a_worker_without_a_limit_is_never_due() {
        let worker = worker("");
        worker.measured(reading(1 << 20));
        assert_eq!((worker.glance(Instant::now()).due, worker.has_had_its_queries()), (None, false));
    }
}
