//! How much room is left for workers: places, memory, and starts at the same time.

use super::view::{PoolView, WorkerView};

#[derive(Debug, Clone)]
pub(super) struct Room {
    places: usize,
    /// Places of workers on their way out.
    places_coming: usize,
    /// `None` if memory is not counted.
    memory: Option<u64>,
    memory_coming: u64,
    starts: usize,
}

/// Why a worker cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Workers are leaving; it can be started when they are gone.
    Soon,
    /// Enough are starting already.
    Starts,
    Places,
    Memory,
}

impl Room {
    pub(super) fn of(view: &PoolView) -> Self {
        let workers = || view.kinds.iter().flat_map(|kind| &kind.workers);
        let stopping = || workers().filter(|worker| worker.is_stopping());
        let reserved: u64 = workers().map(|worker| worker.reserved).sum();
        let count = workers().count();
        let places = view.max_workers.saturating_sub(count);
        let leaving: u64 = stopping().map(|worker| worker.reserved).sum();
        let memory = view.memory_budget.map(|budget| budget.saturating_sub(reserved));
        let starting = workers().filter(|worker| worker.is_starting()).count();
        Self {
            places,
            // A pool beyond its bounds gets no room by what brings it within them.
            places_coming: view.max_workers.saturating_sub(count - stopping().count()) - places,
            memory,
            memory_coming: view
                .memory_budget
                .map_or(leaving, |budget| budget.saturating_sub(reserved - leaving) - budget.saturating_sub(reserved)),
            starts: view.max_starting.saturating_sub(starting),
        }
    }

    /// Takes the room for one worker, or says what is missing. Room that is coming is set aside for whoever asks first.
    pub(super) fn take(&mut self, memory: u64) -> Result<(), Lack> {
        if self.places == 0 && self.places_coming == 0 {
            return Err(Lack::Places);
        }
        if self.memory.is_some_and(|left| left.saturating_add(self.memory_coming) < memory) {
            return Err(Lack::Memory);
        }
        let here = self.places > 0 && self.memory.is_none_or(|left| left >= memory);
        if here && self.starts == 0 {
            return Err(Lack::Starts);
        }
        if self.places > 0 {
            self.places -= 1;
        } else {
            self.places_coming -= 1;
        }
        if let Some(left) = &mut self.memory {
            let now = memory.min(*left);
            *left -= now;
            self.memory_coming -= memory - now;
        }
        if !here {
            return Err(Lack::Soon);
        }
        self.starts -= 1;
        Ok(())
    }

    /// Room that a worker leaves is for the next one of its kind.
    pub(super) fn set_aside(&mut self, memory: u64) {
        self.places_coming = self.places_coming.saturating_sub(1);
        self.memory_coming = self.memory_coming.saturating_sub(memory);
    }

    /// A worker will leave.
    pub(super) fn will_leave(&mut self, worker: &WorkerView) {
        self.places_coming += 1;
        self.memory_coming += worker.reserved;
    }
}
