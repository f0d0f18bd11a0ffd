//! The interface through which a worker's state changes become known.

use std::{fmt, sync::Arc};

use crate::{
    model::{QueryId, WorkerId},
    state::WorkerState,
};

/// A change of a worker's state.
#[derive(Debug)]
pub struct WorkerStateChange<'a> {
    pub worker: WorkerId,
    pub kind: &'a Arc<str>,
    /// The key that the worker is bound to.
    pub key: Option<&'a Arc<str>>,
    /// `None` for a new worker.
    pub from: Option<WorkerState>,
    pub to: WorkerState,
    pub reason: &'static str,
    /// The query that the worker runs, or has just ended.
    pub query: Option<&'a QueryId>,
}

/// Receives the state changes of workers, with the worker's lock held: it must not block.
pub trait WorkerObserver: Send + Sync + fmt::Debug {
    fn on_state_change(&self, change: WorkerStateChange<'_>);
}

#[cfg(test)]
impl WorkerObserver for () {
    fn on_state_change(&self, _: WorkerStateChange<'_>) {}
}
