//! The pool's handle of a worker: its state, and everything mutable about it behind one lock.
//!
//! Two rules prevent deadlocks: no thread holds two worker locks at once, and none takes the registry lock while it holds
//! one.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::Notify;
use tracing::debug;

use crate::{
    broker::{Claim, Lease, LeaseStatus},
    config::KindConfig,
    metrics::KindMetrics,
    model::{DeathCause, QueryId, WorkerId},
    state::{StateMachine, WorkerState},
    sync::Mutex,
};

use super::{
    observer::{WorkerObserver, WorkerStateChange},
    outbox::Outbox,
    recycling::RecycleLimits,
    running::{Dispatch, RunningQuery},
    snapshot::ReadyInfo,
    usage::UsageHistory,
};

/// Longest time between two looks of a driver at its timers.
pub(super) const TIMER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct PoolWorker {
    pub id: WorkerId,
    pub kind: Arc<KindConfig>,
    pub metrics: Arc<KindMetrics>,
    observer: Arc<dyn WorkerObserver>,
    pub(super) machine: StateMachine<WorkerState>,
    pub created: Instant,
    pub(super) created_at: SystemTime,
    /// Index of its kind in the pool.
    pub slot: usize,
    pub(super) key: OnceLock<Arc<str>>,
    pub(super) recycle_limits: RecycleLimits,
    pub(super) lock: Mutex<LockedState>,
    outbox: OnceLock<Outbox>,
    /// Wakes the driver: a stop was requested, its query's lease has a new status, or a query was started that needs it soon.
    pub(super) driver_notify: Arc<Notify>,
}

/// Everything that a worker is created with.
#[derive(Debug)]
pub struct WorkerSpec {
    pub id: WorkerId,
    pub slot: usize,
    pub kind: Arc<KindConfig>,
    /// The key that it is started for.
    pub key: Option<Arc<str>>,
    pub metrics: Arc<KindMetrics>,
    pub observer: Arc<dyn WorkerObserver>,
}

#[derive(Debug)]
pub(super) struct LockedState {
    pub pid: Option<u32>,
    pub ready_info: ReadyInfo,
    pub query: Option<QueryId>,
    /// A query that was started and not yet taken over by the driver.
    started: Option<RunningQuery>,
    pub stop_request: Option<StopRequest>,
    /// A query frame could not be written.
    write_failed: bool,
    /// An operator keeps queries from it.
    pub drained: bool,
    /// The reason to replace it.
    pub due: Option<DeathCause>,
    pub dispatched: u64,
    pub queries_processed: u64,
    pub last_activity: Instant,
    pub last_heard: Instant,
    /// Number of failed queries in a row, and the time of the first.
    pub failures: Option<(u32, Instant)>,
    pub last_success: Option<Instant>,
    pub usage: UsageHistory,
}

/// A requested stop. The first cause stays; the mode can only become more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopRequest {
    pub cause: DeathCause,
    pub mode: StopMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// The running query may end first.
    WhenDone,
    /// The running query is stopped too.
    Now,
    /// SIGKILL, without asking first.
    Kill,
}

impl LockedState {
    /// True unless a stop was requested or the worker is drained.
    fn is_admitting(&self) -> bool {
        self.stop_request.is_none() && !self.drained
    }
}

impl PoolWorker {
    #[must_use]
    pub fn new(spec: WorkerSpec) -> Self {
        let WorkerSpec { id, slot, kind, key, metrics, observer } = spec;
        let now = Instant::now();
        let worker = Self {
            id,
            slot,
            key: key.map_or_else(OnceLock::new, OnceLock::from),
            recycle_limits: RecycleLimits::new(&kind, fastrand::u32(..=100)),
            kind,
            metrics,
            observer,
            machine: StateMachine::new(WorkerState::Spawning),
            created: now,
            created_at: SystemTime::now(),
            lock: Mutex::new(LockedState {
                pid: None,
                ready_info: ReadyInfo::default(),
                query: None,
                started: None,
                stop_request: None,
                write_failed: false,
                drained: false,
                due: None,
                dispatched: 0,
                queries_processed: 0,
                last_activity: now,
                last_heard: now,
                failures: None,
                last_success: None,
                usage: UsageHistory::default(),
            }),
            outbox: OnceLock::new(),
            driver_notify: Arc::default(),
        };
        worker.emit(None, WorkerState::Spawning, "started", None);
        worker
    }

    pub fn state(&self) -> WorkerState {
        self.machine.get()
    }

    /// Marks the worker busy if it can take a query. The caller then starts a query or releases the worker.
    pub fn reserve(&self, now: Instant) -> bool {
        let state = self.lock.lock();
        if !state.is_admitting() || state.query.is_some() {
            return false;
        }
        // An idle worker becomes ready first, so that every query is taken from the same state.
        if self.state() == WorkerState::Idle {
            self.step_quietly(WorkerState::Idle, WorkerState::Ready, now, "wanted");
        }
        self.step_quietly(WorkerState::Ready, WorkerState::Processing, now, "reserved")
    }

    /// Starts a query on the reserved worker: its frame is sent when this returns. The lease comes back if the worker was
    /// stopped or died since it was reserved.
    ///
    /// All of it happens under the worker's lock. A stop is recorded under the same lock, so it comes either before, and
    /// the lease is returned, or after, and the driver finds the query with it. The driver also takes the lock before it
    /// reads, so it cannot see an answer to a query that it does not know.
    pub fn start_query(&self, claim: Claim, now: Instant) -> Result<(), Lease> {
        let mut state = self.lock.lock();
        let Some(outbox) = self.outbox.get() else { return Err(claim.lease) };
        if state.stop_request.is_some() || self.state() != WorkerState::Processing {
            return Err(claim.lease);
        }
        state.last_activity = now;
        state.dispatched += 1;
        let (worker, number, kind_timeout) = (self.id, state.dispatched, self.kind.timeout);
        let (started, frame) = RunningQuery::new(claim, &Dispatch { worker, number, at: now.into(), kind_timeout });
        if outbox.send(&frame).is_err() {
            // The worker is gone or has closed its connection.
            state.write_failed = true;
            self.driver_notify.notify_one();
            return Err(started.undelivered());
        }
        let query = started.lease.query().clone();
        started.attempt.debug_span().in_scope(|| debug!("query dispatched"));
        self.emit(Some(WorkerState::Ready), WorkerState::Processing, "query dispatched", Some(&query));
        state.query = Some(query);
        // Otherwise the driver finds the query when the worker answers, or when it next looks at its timers.
        let wake_driver = outbox.has_unsent()
            || started.timeout.is_some_and(|(limit, _)| limit <= TIMER_CHECK_INTERVAL)
            // A cancel since the claim notified a driver that knew of no query.
            || started.lease.status() != LeaseStatus::Active;
        state.started = Some(started);
        drop(state);
        if wake_driver {
            self.driver_notify.notify_one();
        }
        Ok(())
    }

    /// Wakes the driver when its query's lease has a new status.
    pub fn notify(&self) -> &Arc<Notify> {
        &self.driver_notify
    }

    /// Records the end of the query. True if the worker may take another.
    pub(super) fn finish_query(&self, now: Instant) -> bool {
        let mut state = self.lock.lock();
        let query = state.query.take();
        state.queries_processed += 1;
        state.last_activity = now;
        if self.kind.max_queries.is_some_and(|max| max.get() == 1) {
            // Never reused, not even until its replacement is ready.
            self.record_stop(&mut state, DeathCause::RecycledQueries, StopMode::WhenDone);
            return false;
        }
        let is_free = self.step_quietly(WorkerState::Processing, WorkerState::Ready, now, "query over");
        if is_free {
            self.emit(Some(WorkerState::Processing), WorkerState::Ready, "query over", query.as_ref());
        }
        is_free
    }

    /// Undoes a reservation. True if the worker may take another query.
    pub fn unreserve(&self) -> bool {
        let state = self.lock.lock();
        state.query.is_none()
            && self.step_quietly(WorkerState::Processing, WorkerState::Ready, Instant::now(), "nothing to run")
    }

    /// Runs `enqueue` if the worker can take a query, under the worker's lock, so that no stop comes in between.
    pub fn if_available(&self, enqueue: impl FnOnce()) {
        let state = self.lock.lock();
        if state.is_admitting() && state.query.is_none() && self.state().can_take_query() {
            enqueue();
        }
    }

    /// Requests a stop. It is recorded before anything is done about it, so that what follows is known to be intended.
    pub fn request_stop(&self, cause: DeathCause, mode: StopMode) {
        self.record_stop(&mut self.lock.lock(), cause, mode);
        self.driver_notify.notify_one();
    }

    /// Requests a stop if the worker is in service and has no query; false if not.
    pub fn stop_if_free(&self, cause: DeathCause) -> bool {
        self.stop_if(cause, |_| true)
    }

    /// The same, but never of a drained worker: an operator wants to keep it.
    pub fn stop_if_spare(&self, cause: DeathCause) -> bool {
        self.stop_if(cause, |state| !state.drained)
    }

    fn stop_if(&self, cause: DeathCause, condition: impl FnOnce(&LockedState) -> bool) -> bool {
        let mut state = self.lock.lock();
        let is_free = state.stop_request.is_none() && state.query.is_none() && self.state().can_take_query();
        let stops = is_free && condition(&state);
        if stops {
            self.record_stop(&mut state, cause, StopMode::WhenDone);
            drop(state);
            self.driver_notify.notify_one();
        }
        stops
    }

    fn record_stop(&self, state: &mut LockedState, cause: DeathCause, mode: StopMode) {
        match &mut state.stop_request {
            Some(request) => request.mode = request.mode.max(mode),
            none => *none = Some(StopRequest { cause, mode }),
        }
        self.step_to(WorkerState::Evicting, cause.name(), state.query.as_ref());
    }

    pub(super) fn is_kill_requested(&self) -> bool {
        self.stop_request().is_some_and(|request| request.mode == StopMode::Kill)
    }

    pub(super) async fn wait_for_kill_request(&self) {
        while !self.is_kill_requested() {
            self.driver_notify.notified().await;
        }
    }

    pub(super) fn stop_request(&self) -> Option<StopRequest> {
        self.lock.lock().stop_request
    }

    pub(super) async fn wait_for_stop_request(&self) -> StopRequest {
        loop {
            if let Some(request) = self.stop_request() {
                return request;
            }
            self.driver_notify.notified().await;
        }
    }

    pub(super) fn has_write_failed(&self) -> bool {
        self.lock.lock().write_failed
    }

    /// The requested stop, and the query that was started since the last call.
    pub(super) fn take_started(&self) -> (Option<StopRequest>, Option<RunningQuery>) {
        let mut state = self.lock.lock();
        // Usually there is none, and nothing to move.
        let started = if state.started.is_some() { state.started.take() } else { None };
        (state.stop_request, started)
    }

    pub(super) fn set_outbox(&self, outbox: Outbox) {
        self.outbox.set(outbox).expect("a worker connects once");
    }

    pub(super) fn outbox(&self) -> Option<&Outbox> {
        self.outbox.get()
    }

    /// Takes a loading worker into service. False if a stop came first.
    pub(super) fn mark_ready(&self, info: ReadyInfo) -> bool {
        let mut state = self.lock.lock();
        state.ready_info = info;
        state.last_activity = Instant::now();
        let is_ready = self.step(WorkerState::Loading, WorkerState::Ready, "ready");
        if is_ready {
            self.metrics.record_start(self.created.elapsed());
        }
        is_ready
    }

    /// Moves from `from` to `to`, and emits the change. False if the worker is in another state.
    pub(super) fn step(&self, from: WorkerState, to: WorkerState, reason: &'static str) -> bool {
        let moved = self.step_quietly(from, to, Instant::now(), reason);
        if moved {
            self.emit(Some(from), to, reason, None);
        }
        moved
    }

    /// Moves without emitting the change: a reservation may come to nothing.
    fn step_quietly(&self, from: WorkerState, to: WorkerState, now: Instant, reason: &'static str) -> bool {
        let moved = self.machine.advance(from, to, now, reason).is_ok();
        if moved {
            self.metrics.record_transition(from, to);
        }
        moved
    }

    /// Moves to `to` if the present state allows it, and emits the change with the query that the worker runs.
    pub(super) fn step_to(&self, to: WorkerState, reason: &'static str, query: Option<&QueryId>) {
        if let Ok(from) = self.machine.advance_to(to, Instant::now(), reason) {
            self.metrics.record_transition(from, to);
            self.emit(Some(from), to, reason, query);
        }
    }

    fn emit(&self, from: Option<WorkerState>, to: WorkerState, reason: &'static str, query: Option<&QueryId>) {
        let (worker, kind, key) = (self.id, &self.kind.name, self.key());
        self.observer.on_state_change(WorkerStateChange { worker, kind, key, from, to, reason, query });
    }
}
