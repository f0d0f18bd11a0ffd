//! Carries out the steps of a plan: starts, replaces and stops workers.

use std::{sync::Arc, time::Instant};

use tracing::info;

use crate::{
    model::{DeathCause, WorkerId},
    worker::{PoolWorker, StopMode},
};

use super::{Supervisor, plan::Step};

impl Supervisor {
    /// Brings the pool to its proper size as far as it can be done now.
    pub(super) fn resize(&mut self) {
        let now = Instant::now();
        for step in self.sizing.plan(now) {
            self.take_step(step, now);
        }
    }

    fn take_step(&mut self, step: Step, now: Instant) {
        let context = self.context.clone();
        let kind = context.kinds.get(step.kind());
        let live = || context.registry.live_count(kind.slot);
        match step {
            Step::Grow { keys, reason, .. } => {
                let from = live();
                let started = keys.into_iter().filter_map(|key| self.start_worker(&kind, key)).count();
                let replaced = kind.scaling.lock().record_growth(started, now);
                kind.metrics.record_restarts(replaced);
                context.record_scaling(&kind, from, from + started, reason);
            }
            Step::Replace { worker, reason, .. } => {
                if let Some(new) = self.start_worker(&kind, None) {
                    info!(worker = worker.0, replacement = new.0, kind = %kind.name, reason, "replacing a worker");
                    self.sizing.add_replacement(new, worker);
                }
            }
            Step::Retire { workers, cause, reason, .. } => {
                let from = live();
                for worker in self.find_workers(&workers) {
                    info!(worker = worker.id.0, kind = %kind.name, cause = cause.name(), reason, "retiring a worker");
                    worker.request_stop(cause, StopMode::WhenDone);
                }
                if cause == DeathCause::ScaledDown {
                    context.record_scaling(&kind, from, from.saturating_sub(workers.len()), reason);
                }
            }
            Step::Shrink { workers, cause, reason, .. } => {
                let from = live();
                let stopped = self.find_workers(&workers).filter(|worker| worker.stop_if_spare(cause)).count();
                kind.scaling.lock().record_shrink(now);
                if stopped > 0 {
                    context.record_scaling(&kind, from, from.saturating_sub(stopped), reason);
                }
            }
            Step::Evict { worker, reason, .. } => {
                if let Some(worker) = self.context.registry.get(worker)
                    && worker.stop_if_spare(DeathCause::Evicted)
                {
                    context.record_eviction(&kind, &worker, reason);
                }
            }
            Step::RequestYield { reason, .. } => kind.request_yield(reason),
        }
    }

    fn find_workers(&self, ids: &[WorkerId]) -> impl Iterator<Item = Arc<PoolWorker>> {
        ids.iter().filter_map(|id| self.context.registry.get(*id))
    }
}
