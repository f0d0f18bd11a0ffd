//! The records of a worker: its queries, its use of the machine, and its replacement when it is due.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    model::DeathCause,
    state::{Transition, WorkerState},
};

use super::{
    pool_worker::{LockedState, PoolWorker},
    snapshot::{ReadyInfo, WorkerSnapshot, WorkerStats},
    usage::{UsageReading, UsageSample},
};

impl PoolWorker {
    pub fn stats(&self, now: Instant) -> WorkerStats {
        self.stats_of(&self.lock.lock(), now)
    }

    fn stats_of(&self, state: &LockedState, now: Instant) -> WorkerStats {
        let since = |then: Instant| now.saturating_duration_since(then);
        let age = since(self.created);
        WorkerStats {
            state: self.state(),
            drained: state.drained,
            silence: since(state.last_heard),
            age,
            idle_for: since(state.last_activity),
            queries_processed: state.queries_processed,
            rss: state.usage.latest().map(|sample| sample.rss),
            reserved: self.kind.memory.unwrap_or(0),
            due: state.due.or_else(|| self.recycle_limits.exceeded(state.dispatched, age, None)),
        }
    }

    pub fn snapshot(&self) -> WorkerSnapshot {
        let state = self.lock.lock();
        WorkerSnapshot {
            id: self.id,
            kind: self.kind.name.clone(),
            stats: self.stats_of(&state, Instant::now()),
            pid: state.pid,
            query: state.query.clone(),
            started_at: self.created_at,
            peak_rss: state.usage.peak_rss,
            usage: state.usage.latest(),
            ready_info: state.ready_info.clone(),
            key: self.key().cloned(),
        }
    }

    pub fn history(&self) -> Vec<Transition<WorkerState>> {
        self.machine.history()
    }

    pub fn is_busy(&self) -> bool {
        self.lock.lock().query.is_some() || self.state() == WorkerState::Processing
    }

    /// Keeps queries from the worker, or lets it have them again. False if it is being stopped.
    pub fn set_drained(&self, drained: bool) -> bool {
        let mut state = self.lock.lock();
        let is_live = state.stop_request.is_none() && self.state().is_live();
        if is_live {
            state.drained = drained;
        }
        is_live
    }

    /// True while an operator keeps queries from it.
    pub fn is_drained(&self) -> bool {
        self.lock.lock().drained
    }

    /// True once it has finished a query.
    pub fn has_served(&self) -> bool {
        self.lock.lock().queries_processed > 0
    }

    /// Marks the worker idle if it has had no query for its kind's `idle_after`.
    pub fn mark_idle(&self, now: Instant) {
        let state = self.lock.lock();
        if now.duration_since(state.last_activity) >= self.kind.idle_after {
            self.step(WorkerState::Ready, WorkerState::Idle, "no query for a while");
        }
    }

    /// Number of queries it was given.
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

    /// Has it replaced as soon as its replacement is ready.
    pub fn schedule_replacement(&self, cause: DeathCause) {
        self.lock.lock().due.get_or_insert(cause);
    }

    /// Records that its kind's configuration differs from its own, or no longer does. Returns true if a replacement was
    /// called off.
    pub fn set_outdated(&self, outdated: bool) -> bool {
        let mut state = self.lock.lock();
        if outdated {
            state.due.get_or_insert(DeathCause::Reloaded);
            return false;
        }
        state.due.take_if(|cause| *cause == DeathCause::Reloaded).is_some()
    }

    /// True if the query that it was given last is the last one it gets.
    pub fn has_reached_max_queries(&self) -> bool {
        self.kind.max_queries.is_some()
            && self.recycle_limits.exceeded(self.dispatched(), Duration::ZERO, None).is_some()
    }

    /// Records its use of the machine. Once too large it stays due, or it would be kept beside its replacement.
    pub(super) fn record_usage(&self, reading: UsageReading) {
        let mut state = self.lock.lock();
        state.usage.add(reading, Instant::now());
        let exceeded = self.recycle_limits.exceeded(0, Duration::ZERO, Some(reading.rss));
        state.due = state.due.or(exceeded);
    }

    /// Its last samples, oldest first.
    pub fn samples(&self) -> Vec<UsageSample> {
        self.lock.lock().usage.samples()
    }

    /// Takes a worker without a process into service.
    pub(crate) fn mark_ready_for_bench(&self) {
        self.step_to(WorkerState::Loading, "benchmark", None);
        self.mark_ready(ReadyInfo::default());
    }

    pub fn record_success(&self) {
        let mut state = self.lock.lock();
        state.failures = None;
        state.last_success = Some(Instant::now());
    }

    /// Returns the number of failures in a row, and the time of the first.
    pub fn record_failure(&self) -> (u32, Instant) {
        let mut state = self.lock.lock();
        let (count, since) = state.failures.unwrap_or((0, Instant::now()));
        *state.failures.insert((count + 1, since))
    }

    pub fn has_succeeded_since(&self, then: Instant) -> bool {
        self.lock.lock().last_success.is_some_and(|at| at >= then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mib: u64) -> UsageReading {
        UsageReading { rss: mib << 20, peak_rss: mib << 20, cpu_seconds: 0.0 }
    }

    #[test]
    fn worker_that_was_once_too_large_stays_due() {
        let worker = PoolWorker::for_test_with(1, "memory_soft = \"10MiB\"");
        worker.record_usage(reading(10));
        assert_eq!(worker.stats(Instant::now()).due, None);
        worker.record_usage(reading(11));
        worker.record_usage(reading(1));
        assert_eq!(worker.stats(Instant::now()).due, Some(DeathCause::RecycledMemory));
    }

    #[test]
    fn worker_without_a_limit_is_never_due() {
        let worker = PoolWorker::for_test(1);
        worker.record_usage(reading(1 << 20));
        assert_eq!((worker.stats(Instant::now()).due, worker.has_reached_max_queries()), (None, false));
    }
}
