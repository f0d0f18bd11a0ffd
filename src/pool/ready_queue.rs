//! The order in which the ready workers of a kind are given queries.
//!
//! One order serves every strategy: `round_robin` takes the first entry, `most_recent` the last, and `least_loaded` orders
//! by the queries dispatched before the time of arrival. Every operation is logarithmic in the number of workers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;

use crate::{model::WorkerId, worker::PoolWorker};

#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    order: BTreeMap<ReadyPosition, Arc<PoolWorker>>,
    positions: HashMap<WorkerId, ReadyPosition, RandomState>,
    arrivals: u64,
}

/// Ordered by load, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyPosition {
    load: u64,
    arrival: u64,
}

impl ReadyQueue {
    /// Adds a worker behind those with the same load.
    pub(super) fn push(&mut self, worker: Arc<PoolWorker>, load: u64) {
        self.arrivals += 1;
        self.put_back(ReadyPosition { load, arrival: self.arrivals }, worker);
    }

    /// Puts a worker at a position; a worker has at most one.
    pub(super) fn put_back(&mut self, position: ReadyPosition, worker: Arc<PoolWorker>) {
        self.remove(worker.id);
        self.positions.insert(worker.id, position);
        self.order.insert(position, worker);
    }

    pub(super) fn pop_first(&mut self) -> Option<(ReadyPosition, Arc<PoolWorker>)> {
        let (position, worker) = self.order.pop_first()?;
        self.positions.remove(&worker.id);
        Some((position, worker))
    }

    pub(super) fn pop_last(&mut self) -> Option<(ReadyPosition, Arc<PoolWorker>)> {
        let (position, worker) = self.order.pop_last()?;
        self.positions.remove(&worker.id);
        Some((position, worker))
    }

    pub(super) fn remove(&mut self, id: WorkerId) -> Option<ReadyPosition> {
        let position = self.positions.remove(&id)?;
        self.order.remove(&position);
        Some(position)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
