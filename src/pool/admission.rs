//! Admission: decides whether the pool takes queries and operators' requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tracing::info;

use crate::state::{PoolLifecycle, StateMachine};

use super::{
    AdminError, RequestError,
    events::{EventBus, PoolChange, PoolEventBody},
};

/// Reported while load balancers are given time to notice that the server stops.
const LEAVING: &str = "the server is about to stop and takes queries only for a moment longer";

#[derive(Debug)]
pub(super) struct Admission {
    lifecycle: StateMachine<PoolLifecycle>,
    /// Reason of an operator's drain, while it lasts.
    drained: Mutex<Option<String>>,
    /// The server is about to stop: clients should go elsewhere, but the queries that come are still taken.
    leaving: AtomicBool,
    events: Arc<EventBus>,
}

impl Admission {
    pub(super) fn new(events: Arc<EventBus>) -> Self {
        let lifecycle = StateMachine::new(PoolLifecycle::Initializing);
        Self { lifecycle, drained: Mutex::default(), leaving: AtomicBool::new(false), events }
    }

    pub(super) fn lifecycle(&self) -> PoolLifecycle {
        self.lifecycle.get()
    }

    fn is_running(&self) -> bool {
        matches!(self.lifecycle(), PoolLifecycle::Initializing | PoolLifecycle::Ready)
    }

    /// Fails unless new queries are taken.
    pub(super) fn ensure_admitting(&self) -> Result<(), RequestError> {
        if !self.is_running() {
            return Err(RequestError::NotAdmitting(self.lifecycle()));
        }
        self.drain_message().map_or(Ok(()), |message| Err(RequestError::Drained(message)))
    }

    /// Fails once the server is stopping.
    pub(super) fn ensure_running(&self) -> Result<(), AdminError> {
        if self.is_running() { Ok(()) } else { Err(AdminError::ShuttingDown) }
    }

    /// Reason why clients should send no queries here: none are taken, or soon none will be.
    pub(super) fn out_of_service_reason(&self) -> Option<String> {
        if !self.is_running() {
            return Some(RequestError::NotAdmitting(self.lifecycle()).to_string());
        }
        self.drain_message().or_else(|| self.leaving.load(Relaxed).then(|| LEAVING.to_owned()))
    }

    fn drain_message(&self) -> Option<String> {
        let drained = self.drained.lock();
        let reason = drained.as_ref()?;
        Some(format!("the pool was drained by hand and takes no queries until it is resumed{reason}"))
    }

    /// Takes no new queries until `resume`; accepted ones run.
    pub(super) fn drain(&self, reason: &str) {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        info!("pool drained by hand{reason}");
        *self.drained.lock() = Some(reason.clone());
        self.emit(PoolChange::Drained, || format!("by hand{reason}"));
    }

    pub(super) fn resume(&self) {
        if self.drained.lock().take().is_some() {
            info!("pool resumed");
            self.emit(PoolChange::Resumed, || "by hand".to_owned());
        }
    }

    pub(super) fn mark_ready(&self, workers: usize) {
        let now = Instant::now();
        let _ = self.lifecycle.advance(PoolLifecycle::Initializing, PoolLifecycle::Ready, now, "workers started");
        self.emit(PoolChange::Ready, || format!("{workers} workers"));
        info!(workers, "pool ready");
    }

    pub(super) fn mark_leaving(&self) {
        self.leaving.store(true, Relaxed);
    }

    pub(super) fn mark_draining(&self, running: usize) {
        let _ = self.lifecycle.advance_to(PoolLifecycle::Draining, Instant::now(), "stop requested");
        self.emit(PoolChange::Draining, || format!("{running} queries running"));
    }

    pub(super) fn mark_shut_down(&self) {
        let reason = "all workers stopped";
        let _ = self.lifecycle.advance_to(PoolLifecycle::ShutDown, Instant::now(), reason);
        self.emit(PoolChange::ShutDown, || reason.to_owned());
    }

    fn emit(&self, change: PoolChange, reason: impl FnOnce() -> String) {
        self.events.emit(None, || PoolEventBody::Pool { change, reason: reason() });
    }
}
