//! The workers of one kind that can take a query, in the order in which they became able to.
//!
//! One order serves every way to balance: rotation takes the one that has waited longest, `most_recent` the one that has
//! waited least, and `least_loaded` sorts by what each has done before. Nothing here looks at more than one worker.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;

use crate::{model::WorkerId, worker::PoolWorker};

#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    order: BTreeMap<Place, Arc<PoolWorker>>,
    places: HashMap<WorkerId, Place, RandomState>,
    next: u64,
}

/// Load first, then order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    load: u64,
    arrival: u64,
}

impl ReadyQueue {
    /// At the end of those with the same load.
    pub(super) fn push(&mut self, worker: Arc<PoolWorker>, load: u64) {
        self.next += 1;
        self.put_back(Place { load, arrival: self.next }, worker);
    }

    /// A worker stands in it once.
    pub(super) fn put_back(&mut self, place: Place, worker: Arc<PoolWorker>) {
        self.remove(worker.id);
        self.places.insert(worker.id, place);
        self.order.insert(place, worker);
    }

    pub(super) fn pop_first(&mut self) -> Option<(Place, Arc<PoolWorker>)> {
        let popped = self.order.pop_first();
        self.popped(popped)
    }

    pub(super) fn pop_last(&mut self) -> Option<(Place, Arc<PoolWorker>)> {
        let popped = self.order.pop_last();
        self.popped(popped)
    }

    fn popped(&mut self, popped: Option<(Place, Arc<PoolWorker>)>) -> Option<(Place, Arc<PoolWorker>)> {
        if let Some((_, worker)) = &popped {
            self.places.remove(&worker.id);
        }
        popped
    }

    pub(super) fn remove(&mut self, id: WorkerId) -> Option<Place> {
        let place = self.places.remove(&id)?;
        self.order.remove(&place);
        Some(place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
