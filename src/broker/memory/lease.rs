//! One attempt at a query of the memory broker.

use std::{pin::pin, sync::Arc, time::Instant as StdInstant};

use tokio::time::{Instant, timeout_at};

use crate::{
    broker::{AppendError, AttemptCounts, Ending, LeaseLost, LeaseStatus, Output},
    config::Overflow,
    model::{Failure, FailureReason, Outcome, QueryId, QuerySpec},
    state::QueryState,
};

use super::{
    MemoryBroker,
    entry::Entry,
    record::{Backpressure, FinishResult, ReleaseResult},
};

#[derive(Debug)]
/// See [`super::super::Lease`].
pub struct MemoryLease {
    broker: Arc<MemoryBroker>,
    entry: Arc<Entry>,
    token: u64,
    attempts: AttemptCounts,
    /// End of the time that the worker waits for its readers, once it does.
    stall_deadline: Option<Instant>,
    backpressure: Backpressure,
    /// True once the query was ended or given back.
    settled: bool,
}

impl MemoryLease {
    pub(super) fn new(broker: Arc<MemoryBroker>, entry: Arc<Entry>, token: u64, attempts: AttemptCounts) -> Self {
        Self { broker, entry, token, attempts, stall_deadline: None, backpressure: Backpressure::Apply, settled: false }
    }

    fn end(&self, outputs: Vec<Output>, ending: Ending) -> Result<QueryState, LeaseLost> {
        let now = StdInstant::now();
        let finished = self.entry.finish(self.token, outputs, ending, now)?;
        self.broker.on_stopped_running(&self.entry);
        match finished {
            FinishResult::Over(state) => {
                self.broker.retire(self.entry.clone(), now);
                Ok(state)
            }
            FinishResult::RetryAt(at) => {
                self.broker.retry_at(&self.entry, at);
                Ok(self.entry.state())
            }
        }
    }

    /// Adds as much as there is room for. True if that was all.
    fn try_append(&mut self, outputs: &mut Vec<Output>) -> Result<bool, LeaseLost> {
        let all = self.entry.append(self.token, outputs, self.backpressure)?;
        if all {
            self.stall_deadline = None;
        }
        Ok(all)
    }

    /// Applies the overflow policy once the readers have had their time. True if the worker has to wait on.
    fn on_stall_timeout(&self, outputs: &mut Vec<Output>) -> Result<bool, AppendError> {
        match self.broker.limits.overflow {
            Overflow::Fail => return Err(AppendError::Overflow),
            Overflow::Stall if outputs.first().is_some_and(|next| self.entry.has_lagging_reader(next)) => {
                return Ok(true);
            }
            Overflow::Stall | Overflow::Gap => {}
        }
        self.entry.append(self.token, outputs, Backpressure::Ignore)?;
        Ok(false)
    }

    pub(in crate::broker) fn query(&self) -> &QueryId {
        &self.entry.meta.id
    }

    pub(in crate::broker) fn spec(&self) -> &QuerySpec {
        &self.entry.meta.spec
    }

    pub(in crate::broker) fn attempts(&self) -> AttemptCounts {
        self.attempts
    }

    pub(in crate::broker) fn append_now(&mut self, outputs: &mut Vec<Output>) {
        let _ = self.try_append(outputs);
    }

    pub(in crate::broker) async fn append(&mut self, outputs: &mut Vec<Output>) -> Result<(), AppendError> {
        if self.try_append(outputs)? {
            return Ok(());
        }
        let room = self.entry.room();
        loop {
            // Registered before looking, so that progress of a reader in between is not missed.
            let mut moved = pin!(room.notified());
            moved.as_mut().enable();
            if self.try_append(outputs)? {
                return Ok(());
            }
            let deadline = *self.stall_deadline.get_or_insert_with(|| {
                self.entry.meta.kind_state.metrics.record_stall();
                Instant::now() + self.broker.limits.max_stall
            });
            if Instant::now() >= deadline {
                if !self.on_stall_timeout(outputs)? {
                    return Ok(());
                }
                moved.await;
            } else {
                let _ = timeout_at(deadline, moved).await;
            }
        }
    }

    pub(in crate::broker) fn disable_backpressure(&mut self) {
        self.backpressure = Backpressure::Ignore;
    }

    #[expect(clippy::unused_async, reason = "another broker waits here")]
    pub(in crate::broker) async fn finish(
        mut self,
        outputs: Vec<Output>,
        ending: Ending,
    ) -> Result<QueryState, LeaseLost> {
        self.settled = true;
        self.end(outputs, ending)
    }

    #[expect(clippy::unused_async, reason = "another broker waits here")]
    pub(in crate::broker) async fn release(mut self) {
        self.settled = true;
        match self.entry.release(self.token) {
            ReleaseResult::Waiting => self.broker.wait_again(&self.entry),
            ReleaseResult::Ended => self.broker.retire(self.entry.clone(), StdInstant::now()),
            ReleaseResult::LeaseLost => return,
        }
        self.broker.on_stopped_running(&self.entry);
    }

    pub(in crate::broker) fn status(&self) -> LeaseStatus {
        self.entry.lease_status(self.token)
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
