//! The handle by which the pool knows a worker: its state, and everything mutable about it behind one lock.
//!
//! Two rules keep this free of deadlocks: nobody holds two worker locks at once, and nobody takes the registry lock
//! while holding one.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::{Instant, SystemTime},
};

use tokio::sync::Notify;
use tracing::debug;

use crate::{
    broker::{Claim, LeaseStatus},
    config::KindConfig,
    metrics::KindMetrics,
    model::{DeathCause, QueryId, WorkerId},
    state::{StateMachine, Transition, TransitionError, WorkerState},
    sync::Mutex,
};

use super::{
    WorkerObserver, WorkerStateChange,
    facts::Introduction,
    outbox::Outbox,
    task::{Dispatch, Task},
    usage::Usage,
    wake::LOOKS_EVERY,
    wear::Wear,
};

#[derive(Debug)]
pub struct PoolWorker {
    pub id: WorkerId,
    pub kind: Arc<KindConfig>,
    pub metrics: Arc<KindMetrics>,
    observer: Arc<dyn WorkerObserver>,
    machine: StateMachine<WorkerState>,
    pub created: Instant,
    pub(super) created_at: SystemTime,
    /// Which of the pool's kinds it belongs to.
    pub slot: usize,
    pub(super) key: OnceLock<Arc<str>>,
    pub(super) wear: Wear,
    pub(super) lock: Mutex<Inner>,
    outbox: OnceLock<Outbox>,
    /// Wakes the driver: a stop was asked for, its query has new orders, or a query was started that needs it soon.
    pub(super) attention: Arc<Notify>,
}

/// What a worker begins with.
#[derive(Debug)]
pub struct Birth {
    pub id: WorkerId,
    pub slot: usize,
    pub kind: Arc<KindConfig>,
    /// The key it is for.
    pub key: Option<Arc<str>>,
    pub metrics: Arc<KindMetrics>,
    pub observer: Arc<dyn WorkerObserver>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub pid: Option<u32>,
    pub introduction: Introduction,
    pub current_task: Option<QueryId>,
    /// Started, but not yet taken over by the driver.
    handover: Option<Task>,
    intent: Option<Intent>,
    /// It does not read what it is sent.
    deaf: bool,
    /// It takes no queries because someone said so.
    pub drained: bool,
    /// It is to be replaced.
    pub due: Option<DeathCause>,
    pub dispatched: u64,
    pub queries_processed: u64,
    pub last_activity: Instant,
    pub last_heard: Instant,
    /// Queries in a row that it failed, and when the first of them was.
    pub failures: Option<(u32, Instant)>,
    pub last_success: Option<Instant>,
    pub usage: Usage,
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

impl Inner {
    /// Whether nothing was said against its taking queries.
    fn is_open(&self) -> bool {
        self.intent.is_none() && !self.drained
    }
}

impl PoolWorker {
    #[must_use]
    pub fn new(birth: Birth) -> Self {
        let Birth { id, slot, kind, key, metrics, observer } = birth;
        let now = Instant::now();
        let worker = Self {
            id,
            slot,
            key: key.map_or_else(OnceLock::new, OnceLock::from),
            wear: Wear::new(&kind, fastrand::u32(..=100)),
            kind,
            metrics,
            observer,
            machine: StateMachine::new(WorkerState::Spawning),
            created: now,
            created_at: SystemTime::now(),
            lock: Mutex::new(Inner {
                pid: None,
                introduction: Introduction::default(),
                current_task: None,
                handover: None,
                intent: None,
                deaf: false,
                drained: false,
                due: None,
                dispatched: 0,
                queries_processed: 0,
                last_activity: now,
                last_heard: now,
                failures: None,
                last_success: None,
                usage: Usage::default(),
            }),
            outbox: OnceLock::new(),
            attention: Arc::default(),
        };
        worker.announce(None, WorkerState::Spawning, Cow::Borrowed("started"), None);
        worker
    }

    pub fn state(&self) -> WorkerState {
        self.machine.get()
    }

    pub fn history(&self) -> Vec<Transition<WorkerState>> {
        self.machine.history()
    }

    /// Marks the worker busy if it can take a query. The caller then starts a task or gives it back.
    pub fn reserve(&self, now: Instant) -> bool {
        let inner = self.lock.lock();
        if !inner.is_open() || inner.current_task.is_some() {
            return false;
        }
        // A worker that idles becomes ready first, so that every query is taken from the same state.
        if self.state() == WorkerState::Idle {
            let _ = self.step_quietly(WorkerState::Idle, WorkerState::Ready, now, "wanted");
        }
        self.step_quietly(WorkerState::Ready, WorkerState::Processing, now, "reserved").is_ok()
    }

    /// Gives the worker its reserved query: the frame is on its way when this returns. The claim comes back if the
    /// worker was stopped or died since it was reserved.
    pub fn start_task(&self, claim: Claim, now: Instant) -> Result<(), Claim> {
        let mut inner = self.lock.lock();
        let Some(outbox) = self.outbox.get() else { return Err(claim) };
        if inner.intent.is_some() || self.state() != WorkerState::Processing {
            return Err(claim);
        }
        inner.last_activity = now;
        inner.dispatched += 1;
        let dispatch = Dispatch::new(self, &claim, inner.dispatched, now);
        if outbox.send(&dispatch.line).is_err() {
            // The worker is gone, or has closed its ears: no reason for the query to suffer.
            dispatch.attempt.undelivered();
            inner.deaf = true;
            self.attention.notify_one();
            return Err(claim);
        }
        // The driver looks for the task after every wake, and takes this lock to do so: it cannot read an answer
        // before it knows the question.
        let query = claim.lease.query().clone();
        dispatch.attempt.details().in_scope(|| debug!("query dispatched"));
        self.announce(Some(WorkerState::Ready), WorkerState::Processing, "query dispatched".into(), Some(&query));
        inner.current_task = Some(query);
        // The driver finds it when the worker answers, or the next time it looks at its clocks.
        let wanted = outbox.has_unsent() || dispatch.ends_within(LOOKS_EVERY);
        // A cancel since the claim has rung for a driver that knew of no query.
        let wanted = wanted || claim.lease.status() != LeaseStatus::Active;
        inner.handover = Some(dispatch.sent(claim.lease));
        drop(inner);
        if wanted {
            self.attention.notify_one();
        }
        Ok(())
    }

    /// What calls the driver to its query.
    pub fn bell(&self) -> &Arc<Notify> {
        &self.attention
    }

    /// The worker is free again. True if it may take another query.
    pub(super) fn finish_task(&self, now: Instant) -> bool {
        let mut inner = self.lock.lock();
        let query = inner.current_task.take();
        inner.queries_processed += 1;
        inner.last_activity = now;
        if self.kind.max_queries.is_some_and(|max| max.get() == 1) {
            // It is never used twice.
            self.record_stop(&mut inner, DeathCause::RecycledQueries, StopMode::WhenDone);
            return false;
        }
        let free = self.step_quietly(WorkerState::Processing, WorkerState::Ready, now, "query over").is_ok();
        if free {
            self.announce(Some(WorkerState::Processing), WorkerState::Ready, "query over".into(), query.as_ref());
        }
        free
    }

    /// Undoes a reservation that came to nothing. True if the worker may take another query.
    pub fn unreserve(&self) -> bool {
        let inner = self.lock.lock();
        inner.current_task.is_none()
            && self.step_quietly(WorkerState::Processing, WorkerState::Ready, Instant::now(), "nothing to run").is_ok()
    }

    /// Runs `enqueue` if the worker can take a query, with the worker lock held, so that no stop slips in between.
    pub fn if_available(&self, enqueue: impl FnOnce()) {
        let inner = self.lock.lock();
        if inner.is_open() && inner.current_task.is_none() && self.state().can_take_query() {
            enqueue();
        }
    }

    /// Asks for the worker to be stopped. Recorded before anything is done about it, so that what follows is known
    /// to be intended.
    pub fn request_stop(&self, cause: DeathCause, mode: StopMode) {
        self.record_stop(&mut self.lock.lock(), cause, mode);
        self.attention.notify_one();
    }

    /// Asks for the worker to be stopped if it is in service and has no query. Says whether it was.
    pub fn stop_if_free(&self, cause: DeathCause) -> bool {
        self.stop_if(cause, |_| true)
    }

    /// The same, but never if it is drained: whoever did that wants it to stay.
    pub fn stop_if_spare(&self, cause: DeathCause) -> bool {
        self.stop_if(cause, |inner| !inner.drained)
    }

    fn stop_if(&self, cause: DeathCause, may_go: impl FnOnce(&Inner) -> bool) -> bool {
        let mut inner = self.lock.lock();
        let free = inner.intent.is_none() && inner.current_task.is_none() && self.state().can_take_query();
        let free = free && may_go(&inner);
        if free {
            self.record_stop(&mut inner, cause, StopMode::WhenDone);
            drop(inner);
            self.attention.notify_one();
        }
        free
    }

    fn record_stop(&self, inner: &mut Inner, cause: DeathCause, mode: StopMode) {
        match &mut inner.intent {
            Some(intent) => intent.mode = intent.mode.max(mode),
            none => *none = Some(Intent { cause, mode }),
        }
        let _ = self.step_to(WorkerState::Evicting, cause.name(), inner.current_task.as_ref());
    }

    /// Whether it is to take no more queries, though it lives on. False if it is being stopped.
    pub fn set_drained(&self, drained: bool) -> bool {
        let mut inner = self.lock.lock();
        let lives = inner.intent.is_none() && self.state().is_live();
        if lives {
            inner.drained = drained;
        }
        lives
    }

    /// Whether there is no more time to be polite.
    pub(super) fn is_to_be_killed(&self) -> bool {
        self.intent().is_some_and(|intent| intent.mode == StopMode::Kill)
    }

    /// Resolves when that is so.
    pub(super) async fn killed(&self) {
        while !self.is_to_be_killed() {
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

    /// What the driver has to know: a stop that was asked for, and a query that was started since.
    pub(super) fn news(&self) -> (Option<Intent>, Option<Task>) {
        let mut inner = self.lock.lock();
        // Mostly there is none, and nothing to move.
        let task = if inner.handover.is_some() { inner.handover.take() } else { None };
        (inner.intent, task)
    }

    /// The query it was running is another's concern now.
    pub(super) fn forget_task(&self) {
        self.lock.lock().current_task = None;
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
    ) -> Result<(), TransitionError<WorkerState>> {
        self.step_quietly(from, to, Instant::now(), reason)?;
        self.announce(Some(from), to, Cow::Borrowed(reason), None);
        Ok(())
    }

    /// A move that is no news to anyone: a reservation may come to nothing.
    fn step_quietly(
        &self,
        from: WorkerState,
        to: WorkerState,
        now: Instant,
        reason: &'static str,
    ) -> Result<(), TransitionError<WorkerState>> {
        self.machine.advance(from, to, now, reason)?;
        self.metrics.worker_moved(from, to);
        Ok(())
    }

    /// Goes to `to` from whatever state allows it, with the query that it runs, if any.
    pub(super) fn step_to(
        &self,
        to: WorkerState,
        reason: impl Into<Cow<'static, str>>,
        query: Option<&QueryId>,
    ) -> Result<(), TransitionError<WorkerState>> {
        let reason = reason.into();
        let from = self.machine.advance_to(to, Instant::now(), reason.clone())?;
        self.metrics.worker_moved(from, to);
        self.announce(Some(from), to, reason, query);
        Ok(())
    }

    fn announce(&self, from: Option<WorkerState>, to: WorkerState, reason: Cow<'static, str>, query: Option<&QueryId>) {
        self.observer.on_state_change(WorkerStateChange { worker: self, from, to, reason, query });
    }
}
