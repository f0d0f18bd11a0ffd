//! The capacity that is left for new workers: their number, their memory, and starts at the same time.

use super::view::{PoolView, WorkerView};

#[derive(Debug, Clone)]
pub(super) struct FreeCapacity {
    workers: usize,
    /// Number that becomes free when the stopping workers are gone.
    workers_leaving: usize,
    /// `None` if memory is not limited.
    memory: Option<u64>,
    memory_leaving: u64,
    starts: usize,
}

/// The reason why a worker cannot be started now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    /// It can be started when workers that are stopping are gone.
    Pending,
    /// Too many workers are starting.
    Starts,
    Limit(CapacityLimit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacityLimit {
    /// The kind's own `max`: only a worker of the same kind can make room.
    KindMax,
    PoolMax,
    Memory,
}

impl CapacityLimit {
    /// True if the end of the worker, whatever its kind, makes room under the limit.
    pub(super) fn is_eased_by(self, worker: &WorkerView) -> bool {
        self != Self::Memory || worker.reserved > 0
    }
}

impl FreeCapacity {
    pub(super) fn of(view: &PoolView) -> Self {
        let workers = || view.kinds.iter().flat_map(|kind| &kind.workers);
        let stopping = || workers().filter(|worker| worker.is_stopping());
        let count = workers().count();
        let reserved: u64 = workers().map(|worker| worker.reserved).sum();
        let leaving: u64 = stopping().map(|worker| worker.reserved).sum();
        let free_workers = view.max_workers.saturating_sub(count);
        let memory = view.memory_budget.map(|budget| budget.saturating_sub(reserved));
        // In a pool beyond its bounds, stopping workers free capacity only once it is back within them.
        let memory_leaving = view
            .memory_budget
            .map_or(leaving, |budget| budget.saturating_sub(reserved - leaving) - budget.saturating_sub(reserved));
        let starting = workers().filter(|worker| worker.is_starting()).count();
        Self {
            workers: free_workers,
            workers_leaving: view.max_workers.saturating_sub(count - stopping().count()) - free_workers,
            memory,
            memory_leaving,
            starts: view.max_starting.saturating_sub(starting),
        }
    }

    /// Takes the capacity for one worker, or returns what is short. With `Pending` it is taken from what is being freed.
    pub(super) fn take(&mut self, memory: u64) -> Result<(), Shortage> {
        if self.workers == 0 && self.workers_leaving == 0 {
            return Err(Shortage::Limit(CapacityLimit::PoolMax));
        }
        if self.memory.is_some_and(|left| left.saturating_add(self.memory_leaving) < memory) {
            return Err(Shortage::Limit(CapacityLimit::Memory));
        }
        let is_free_now = self.workers > 0 && self.memory.is_none_or(|left| left >= memory);
        if is_free_now && self.starts == 0 {
            return Err(Shortage::Starts);
        }
        if self.workers > 0 {
            self.workers -= 1;
        } else {
            self.workers_leaving -= 1;
        }
        if let Some(left) = &mut self.memory {
            let now = memory.min(*left);
            *left -= now;
            self.memory_leaving -= memory - now;
        }
        if !is_free_now {
            return Err(Shortage::Pending);
        }
        self.starts -= 1;
        Ok(())
    }

    /// Keeps the capacity that a stopping worker frees for the next one of its kind.
    pub(super) fn set_aside(&mut self, memory: u64) {
        self.workers_leaving = self.workers_leaving.saturating_sub(1);
        self.memory_leaving = self.memory_leaving.saturating_sub(memory);
    }

    /// Adds the capacity of a worker that will be stopped.
    pub(super) fn add_leaving(&mut self, worker: &WorkerView) {
        self.workers_leaving += 1;
        self.memory_leaving += worker.reserved;
    }
}
