//! Stops workers that are not needed: after a quiet time, after `idle_ttl`, on request, or with their kind.

use std::cmp::Reverse;

use crate::model::{DeathCause, WorkerId};

use super::{
    Planner, Step,
    view::{KindView, WorkerView},
};

impl Planner<'_> {
    pub(super) fn shrink(&mut self, kind: &KindView) {
        let step = if kind.removed {
            self.remove(kind)
        } else {
            self.shrink_on_request(kind).or_else(|| self.shrink_idle(kind))
        };
        self.steps.extend(step);
    }

    /// Stops workers after `idle_ttl`, or after a quiet time.
    fn shrink_idle(&self, kind: &KindView) -> Option<Step> {
        let config = &kind.config;
        let surplus = self.spare_workers(kind);
        if surplus == 0 {
            return None;
        }
        let idle = self.idle_workers(kind);
        let is_expired = |worker: &&&WorkerView| config.idle_ttl.is_some_and(|ttl| worker.idle_for >= ttl);
        let expired: Vec<WorkerId> = idle.iter().filter(is_expired).map(|worker| worker.id).take(surplus).collect();
        if !expired.is_empty() {
            let reason = format!("no query for idle_ttl {:?}", config.idle_ttl.unwrap_or_default());
            return Some(Step::Shrink { kind: kind.kind, workers: expired, cause: DeathCause::Idle, reason });
        }
        if kind.quiet_for.is_none_or(|quiet| quiet < config.scale_down_after) {
            return None;
        }
        // Keeps as many as were busy at once in the quiet time.
        let kept = kind.floor.max(kind.peak_busy) + kind.count_of(&self.leaving);
        let spare = kind.live().saturating_sub(kept).min(config.scale_down_step.get());
        let workers: Vec<WorkerId> = idle.iter().map(|worker| worker.id).take(spare).collect();
        let reason = format!(
            "nothing has waited for scale_down_after {:?}, and at most {} of {} were busy",
            config.scale_down_after,
            kind.peak_busy,
            kind.live()
        );
        let cause = DeathCause::ScaledDown;
        (!workers.is_empty()).then_some(Step::Shrink { kind: kind.kind, workers, cause, reason })
    }

    /// The idle workers that may go, the longest idle first.
    fn idle_workers<'k>(&self, kind: &'k KindView) -> Vec<&'k WorkerView> {
        let succeeded = kind.succeeded();
        let may_go = |worker: &&WorkerView| {
            let paired = worker.replaces.is_some() || succeeded.contains(&worker.id);
            worker.is_free() && !worker.wanted && !worker.drained && !paired && !self.leaving.contains(&worker.id)
        };
        let mut idle: Vec<&WorkerView> = kind.workers.iter().filter(may_go).collect();
        idle.sort_by_key(|worker| (Reverse(worker.idle_for), worker.id));
        idle
    }

    /// An operator asked for fewer, or the kind's `max` was lowered: idle workers go first, then starting ones, then busy
    /// ones when they end their queries.
    fn shrink_on_request(&self, kind: &KindView) -> Option<Step> {
        let target = kind.shrink_to?;
        let kept = target + kind.count_of(&self.leaving);
        let surplus = kind.live().checked_sub(kept).filter(|surplus| *surplus > 0)?;
        let counts = |worker: &&WorkerView| self.stays(worker) && !worker.drained && !kind.is_surge(worker);
        let mut live: Vec<&WorkerView> = kind.workers.iter().filter(counts).collect();
        live.sort_by_key(|worker| (!worker.is_free(), !worker.is_starting(), Reverse(worker.idle_for), worker.id));
        let workers = live.iter().take(surplus).map(|worker| worker.id).collect();
        let max = kind.config.max.get();
        let reason = match target {
            target if target >= max => format!("max is {max}"),
            1 => "someone asked for 1 worker".to_owned(),
            target => format!("someone asked for {target} workers"),
        };
        Some(Step::Retire { kind: kind.kind, workers, cause: DeathCause::ScaledDown, reason })
    }

    /// Stops the workers of a kind that is no longer configured, once its last query has ended.
    fn remove(&self, kind: &KindView) -> Option<Step> {
        let staying = kind.workers.iter().filter(|worker| self.stays(worker));
        let workers: Vec<WorkerId> = staying.map(|worker| worker.id).collect();
        let reason = "its kind is no longer configured".to_owned();
        (kind.unfinished == 0 && !workers.is_empty()).then_some(Step::Retire {
            kind: kind.kind,
            workers,
            cause: DeathCause::Reloaded,
            reason,
        })
    }
}
