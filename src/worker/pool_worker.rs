//! The handle by which the pool knows a worker: its state, and everything mutable about it behind one lock.
//!
//! Two rules keep this free of deadlocks: nobody holds two worker locks at once, and nobody takes the registry lock
//! while holding one.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use bytes::BytesMut;
use tokio::sync::Notify;
use tracing::{Span, debug, info_span};

use crate::{
    broker::{Claim, Lease},
    config::KindConfig,
    metrics::KindMetrics,
    model::{DeathCause, QueryId, WorkerId},
    protocol::PoolFrame,
    state::{ConnectionState, Machine, Refused, StateCell, Transition, WorkerState},
    sync::Mutex,
};

use super::{
    outbox::Outbox,
    usage::{Reading, Sample, Usage},
};

#[derive(Debug)]
pub struct PoolWorker {
    pub id: WorkerId,
    pub kind: Arc<KindConfig>,
    pub metrics: Arc<KindMetrics>,
    machine: Machine<WorkerState>,
    pub(super) connection: StateCell<ConnectionState>,
    pub created: Instant,
    created_at: SystemTime,
    lock: Mutex<Inner>,
    outbox: OnceLock<Outbox>,
    /// Wakes the driver: a query was started, or a stop was asked for.
    pub(super) attention: Notify,
}

#[derive(Debug)]
struct Inner {
    pid: Option<u32>,
    introduction: Introduction,
    current_task: Option<QueryId>,
    /// Started, but not yet taken over by the driver.
    handover: Option<Task>,
    intent: Option<Intent>,
    /// It does not read what it is sent.
    deaf: bool,
    dispatched: u64,
    queries_processed: u64,
    last_activity: Instant,
    last_heard: Instant,
    /// Queries in a row that it failed, and when the first of them was.
    failures: Option<(u32, Instant)>,
    last_success: Option<Instant>,
    usage: Usage,
}

/// What the worker said of itself in `ready`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    pub name: Option<String>,
    pub version: Option<String>,
    pub capabilities: Vec<String>,
    /// Whether it sends heartbeats.
    pub heartbeats: bool,
}

/// A stop that was asked for. The cause is the first one given; the mode can only become more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intent {
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

/// A query on its way to the worker's driver.
#[derive(Debug)]
pub(super) struct Task {
    pub lease: Box<dyn Lease>,
    pub request_id: String,
    /// The limit that applies, for the message, and when it is reached.
    pub timeout: Option<(Duration, Instant)>,
    /// Everything logged about this attempt is logged within it.
    pub span: Span,
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
    pub peak_rss: Option<u64>,
    pub usage: Option<Sample>,
    /// How long ago it last said anything.
    pub last_heard: Duration,
    pub introduction: Introduction,
}

impl PoolWorker {
    #[must_use]
    pub fn new(id: WorkerId, kind: Arc<KindConfig>, metrics: Arc<KindMetrics>) -> Self {
        let now = Instant::now();
        Self {
            id,
            kind,
            metrics,
            machine: Machine::new(WorkerState::Spawning),
            connection: StateCell::new(ConnectionState::Disconnected),
            created: now,
            created_at: SystemTime::now(),
            lock: Mutex::new(Inner {
                pid: None,
                introduction: Introduction::default(),
                current_task: None,
                handover: None,
                intent: None,
                deaf: false,
                dispatched: 0,
                queries_processed: 0,
                last_activity: now,
                last_heard: now,
                failures: None,
                last_success: None,
                usage: Usage::default(),
            }),
            outbox: OnceLock::new(),
            attention: Notify::new(),
        }
    }

    pub fn state(&self) -> WorkerState {
        self.machine.get()
    }

    pub fn history(&self) -> Vec<Transition<WorkerState>> {
        self.machine.history()
    }

    pub fn is_busy(&self) -> bool {
        self.lock.lock().current_task.is_some() || self.state() == WorkerState::Processing
    }

    /// Whether it has finished a query.
    pub fn has_served(&self) -> bool {
        self.lock.lock().queries_processed > 0
    }

    pub fn snapshot(&self) -> Snapshot {
        let inner = self.lock.lock();
        Snapshot {
            id: self.id,
            kind: self.kind.name.clone(),
            state: self.state(),
            pid: inner.pid,
            query: inner.current_task.clone(),
            queries_processed: inner.queries_processed,
            started_at: self.created_at,
            uptime: self.created.elapsed(),
            peak_rss: inner.usage.peak_rss,
            usage: inner.usage.latest(),
            last_heard: inner.last_heard.elapsed(),
            introduction: inner.introduction.clone(),
        }
    }

    /// Marks the worker busy if it can take a query. The caller then starts a task or gives it back.
    pub fn reserve(&self) -> bool {
        let inner = self.lock.lock();
        if inner.intent.is_some() || inner.current_task.is_some() {
            return false;
        }
        // A worker that idles becomes ready first, so that every query is taken from the same state.
        let _ = self.step(WorkerState::Idle, WorkerState::Ready, "wanted");
        self.step(WorkerState::Ready, WorkerState::Processing, "reserved").is_ok()
    }

    /// Gives the worker its reserved query: the frame is on its way when this returns. The claim comes back if the
    /// worker was stopped or died since it was reserved.
    pub fn start_task(&self, claim: Claim) -> Result<(), Claim> {
        let mut inner = self.lock.lock();
        let Some(outbox) = self.outbox.get() else { return Err(claim) };
        if inner.intent.is_some() || self.state() != WorkerState::Processing {
            return Err(claim);
        }
        inner.dispatched += 1;
        let spec = claim.lease.spec();
        let attempt = claim.lease.tries().attempt;
        let request_id = format!("{}-{}", self.id, inner.dispatched);
        let limit = [spec.timeout.or(self.kind.timeout), claim.deadline].into_iter().flatten().min();
        let timeout = limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
        let mut line = BytesMut::with_capacity(spec.payload.len() + 256);
        PoolFrame::Query {
            request_id: &request_id,
            payload: spec.payload.as_str(),
            attempt: Some(attempt),
            query_type: spec.query_type.as_deref(),
            key: spec.key.as_deref(),
            session_id: spec.session_id.as_deref(),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            traceparent: None,
        }
        .encode(&mut line);
        if outbox.send(&line).is_err() {
            // The worker is gone, or has closed its ears: no reason for the query to suffer.
            inner.deaf = true;
            self.attention.notify_one();
            return Err(claim);
        }
        // The driver looks for the task after every wake, and takes this lock to do so: it cannot read an answer
        // before it knows the question.
        let query = claim.lease.query().clone();
        let span = info_span!("query", %query, kind = %self.kind.name, worker = self.id.0, attempt);
        debug!(parent: &span, "query dispatched");
        inner.current_task = Some(query);
        inner.handover = Some(Task { lease: claim.lease, request_id, timeout, span });
        drop(inner);
        self.attention.notify_one();
        Ok(())
    }

    /// The worker is free again. True if it may take another query.
    pub(super) fn finish_task(&self) -> bool {
        let mut inner = self.lock.lock();
        inner.current_task = None;
        inner.queries_processed += 1;
        inner.last_activity = Instant::now();
        self.step(WorkerState::Processing, WorkerState::Ready, "query over").is_ok()
    }

    /// Undoes a reservation that came to nothing. True if the worker may take another query.
    pub fn unreserve(&self) -> bool {
        let inner = self.lock.lock();
        inner.current_task.is_none() && self.step(WorkerState::Processing, WorkerState::Ready, "nothing to run").is_ok()
    }

    /// Runs `enqueue` if the worker can take a query, with the worker lock held, so that no stop slips in between.
    pub fn if_available(&self, enqueue: impl FnOnce()) {
        let inner = self.lock.lock();
        if inner.intent.is_none() && inner.current_task.is_none() && self.state().can_take_query() {
            enqueue();
        }
    }

    /// Asks for the worker to be stopped. Recorded before anything is done about it, so that what follows is known
    /// to be intended.
    pub fn request_stop(&self, cause: DeathCause, mode: StopMode) {
        let mut inner = self.lock.lock();
        match &mut inner.intent {
            Some(intent) => intent.mode = intent.mode.max(mode),
            none => *none = Some(Intent { cause, mode }),
        }
        let _ = self.step_to(WorkerState::Evicting, cause.name());
        drop(inner);
        self.attention.notify_one();
    }

    /// Marks the worker idle if it has had no query for as long as its kind says.
    pub fn mark_idle(&self, now: Instant) {
        let inner = self.lock.lock();
        if now.duration_since(inner.last_activity) >= self.kind.idle_after {
            let _ = self.step(WorkerState::Ready, WorkerState::Idle, "no query for a while");
        }
    }

    /// Resolves when there is no more time to be polite.
    pub(super) async fn killed(&self) {
        while self.intent().is_none_or(|intent| intent.mode != StopMode::Kill) {
            self.attention.notified().await;
        }
    }

    pub(super) fn intent(&self) -> Option<Intent> {
        self.lock.lock().intent
    }

    /// Whether it was found not to read what it is sent.
    pub(super) fn is_deaf(&self) -> bool {
        self.lock.lock().deaf
    }

    pub(super) fn take_over(&self) -> Option<Task> {
        self.lock.lock().handover.take()
    }

    /// The query it was running is another's concern now.
    pub(super) fn forget_task(&self) {
        self.lock.lock().current_task = None;
    }

    pub(super) fn set_pid(&self, pid: u32) {
        self.lock.lock().pid = Some(pid);
    }

    pub(super) fn measured(&self, reading: Reading) {
        self.lock.lock().usage.add(reading, Instant::now());
    }

    pub(super) fn heard(&self) {
        self.lock.lock().last_heard = Instant::now();
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

    pub(super) fn connected(&self, outbox: Outbox) {
        self.outbox.set(outbox).expect("a worker connects once");
    }

    pub(super) fn outbox(&self) -> Option<&Outbox> {
        self.outbox.get()
    }

    /// The worker said `ready`.
    pub(super) fn introduced(&self, introduction: Introduction) -> bool {
        let mut inner = self.lock.lock();
        inner.introduction = introduction;
        inner.last_activity = Instant::now();
        let ready = self.step(WorkerState::Loading, WorkerState::Ready, "ready").is_ok();
        if ready {
            self.metrics.started(self.created.elapsed());
        }
        ready
    }

    pub(super) fn step(
        &self,
        from: WorkerState,
        to: WorkerState,
        reason: &'static str,
    ) -> Result<(), Refused<WorkerState>> {
        self.machine.advance(from, to, Instant::now(), reason)?;
        self.metrics.worker_moved(from, to);
        Ok(())
    }

    /// Goes to `to` from whatever state allows it.
    pub(super) fn step_to(
        &self,
        to: WorkerState,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<(), Refused<WorkerState>> {
        let from = self.machine.advance_to(to, Instant::now(), reason.into())?;
        self.metrics.worker_moved(from, to);
        Ok(())
    }
}
