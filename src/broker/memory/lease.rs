//! One attempt at a query of the memory broker.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    broker::{Lease, LeaseLost, Order, Output},
    model::{Failure, FailureReason, Outcome, QueryId},
    state::QueryState,
};

use super::{
    Store,
    entry::{Entry, Held, Released},
};

#[derive(Debug)]
pub(super) struct MemoryLease {
    store: Arc<Store>,
    entry: Arc<Entry>,
    held: Held,
}

impl MemoryLease {
    pub(super) fn new(store: Arc<Store>, entry: Arc<Entry>, held: Held) -> Self {
        Self { store, entry, held }
    }

    fn end(&self, outputs: Vec<Output>, outcome: Outcome) -> Result<QueryState, LeaseLost> {
        let state = self.entry.finish(self.held.token, outputs, outcome)?;
        self.store.retire(self.entry.clone());
        Ok(state)
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn query(&self) -> &QueryId {
        &self.entry.id
    }

    async fn append(&mut self, outputs: Vec<Output>) -> Result<(), LeaseLost> {
        self.entry.append(self.held.token, outputs)
    }

    async fn finish(self: Box<Self>, outputs: Vec<Output>, outcome: Outcome) -> Result<QueryState, LeaseLost> {
        self.end(outputs, outcome)
    }

    async fn release(self: Box<Self>) {
        match self.entry.release(self.held.token) {
            Released::Waiting => {
                self.store.returned(&self.entry);
            }
            Released::Ended => self.store.retire(self.entry.clone()),
            Released::NotOurs => {}
        }
    }

    fn orders(&mut self) -> &mut watch::Receiver<Order> {
        &mut self.held.orders
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        // Refused, and rightly so, wherever the query was ended or given back.
        let failure =
            Failure::new(FailureReason::WorkerDied, "the server lost track of the query; this is a bug in remuda");
        let _ = self.end(Vec::new(), Outcome::Error(Box::new(failure)));
    }
}
