//! One attempt at a query of the memory broker.

use std::{pin::pin, sync::Arc, time::Instant as StdInstant};

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use crate::{
    broker::{AppendError, Ending, Lease, LeaseLost, Order, Output, Tries},
    config::Overflow,
    model::{Failure, FailureReason, Outcome, QueryId, QuerySpec},
    soon::Soon,
    state::QueryState,
};

use super::{
    entry::Entry,
    record::{Finished, Held, Released, Room},
    store::Store,
};

#[derive(Debug)]
pub(super) struct MemoryLease {
    store: Arc<Store>,
    entry: Arc<Entry>,
    held: Held,
    /// How long the worker is made to wait for its readers, once it is.
    patience: Option<Instant>,
    room: Room,
    /// The query was ended or given back.
    settled: bool,
}

impl MemoryLease {
    pub(super) fn new(store: Arc<Store>, entry: Arc<Entry>, held: Held) -> Self {
        Self { store, entry, held, patience: None, room: Room::Respect, settled: false }
    }

    fn end(&self, outputs: Vec<Output>, ending: Ending) -> Result<QueryState, LeaseLost> {
        let now = StdInstant::now();
        let finished = self.entry.finish(self.held.token, outputs, ending, now)?;
        self.store.stopped_running(&self.entry);
        match finished {
            Finished::Over(state) => {
                self.store.retire(self.entry.clone(), now);
                Ok(state)
            }
            Finished::RetryAt(at) => {
                self.store.retry_at(&self.entry, at);
                Ok(self.entry.state())
            }
        }
    }

    /// Adds what there is room for. True if that was all.
    fn try_append(&mut self, outputs: &mut Vec<Output>) -> Result<bool, LeaseLost> {
        let all = self.entry.append(self.held.token, outputs, self.room)?;
        if all {
            self.patience = None;
        }
        Ok(all)
    }

    /// The readers have had their time. Says whether the worker has to wait on.
    fn out_of_patience(&self, outputs: &mut Vec<Output>) -> Result<bool, AppendError> {
        match self.store.limits.overflow {
            Overflow::Fail => return Err(AppendError::Overflow),
            Overflow::Stall if outputs.first().is_some_and(|next| self.entry.has_laggard(next)) => return Ok(true),
            Overflow::Stall | Overflow::Gap => {}
        }
        self.entry.append(self.held.token, outputs, Room::Ignore)?;
        Ok(false)
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn query(&self) -> &QueryId {
        &self.entry.fixed.id
    }

    fn spec(&self) -> &QuerySpec {
        &self.entry.fixed.spec
    }

    fn tries(&self) -> Tries {
        self.held.tries
    }

    fn append_now(&mut self, outputs: &mut Vec<Output>) {
        let _ = self.try_append(outputs);
    }

    async fn append(&mut self, outputs: &mut Vec<Output>) -> Result<(), AppendError> {
        if self.try_append(outputs)? {
            return Ok(());
        }
        let room = self.entry.room();
        loop {
            // Registered before looking, so that a reader that moves in between is not missed.
            let mut moved = pin!(room.notified());
            moved.as_mut().enable();
            if self.try_append(outputs)? {
                return Ok(());
            }
            let deadline = *self.patience.get_or_insert_with(|| {
                self.entry.fixed.tally.metrics.stalled();
                Instant::now() + self.store.limits.max_stall
            });
            if Instant::now() >= deadline {
                if !self.out_of_patience(outputs)? {
                    return Ok(());
                }
                moved.await;
            } else {
                let _ = timeout_at(deadline, moved).await;
            }
        }
    }

    fn hurry(&mut self) {
        self.room = Room::Ignore;
    }

    fn finish(
        mut self: Box<Self>,
        outputs: Vec<Output>,
        ending: Ending,
    ) -> Soon<'static, Result<QueryState, LeaseLost>> {
        self.settled = true;
        Soon::now(self.end(outputs, ending))
    }

    async fn release(mut self: Box<Self>) {
        self.settled = true;
        match self.entry.release(self.held.token) {
            Released::Waiting => self.store.waits_again(&self.entry),
            Released::Ended => self.store.retire(self.entry.clone(), StdInstant::now()),
            Released::NotOurs => return,
        }
        self.store.stopped_running(&self.entry);
    }

    fn order(&self) -> Order {
        self.entry.order(self.held.token)
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let failure =
            Failure::new(FailureReason::WorkerDied, "the server lost track of the query; this is a bug in remuda");
        let _ = self.end(Vec::new(), Ending::plain(Outcome::Error(Box::new(failure))));
    }
}
