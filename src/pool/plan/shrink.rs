//! Stops workers that are not needed: after a quiet time, after `idle_ttl`, on request, or with their kind.

use std::cmp::Reverse;

use crate::model::{DeathCause, WorkerId};

use super::{
    Step,
    view::{KindView, WorkerView},
};

/// `leaving` are the workers that other steps of the same plan stop.
pub(super) fn plan(kind: &KindView, leaving: &[WorkerId], steps: &mut Vec<Step>) {
    if kind.removed {
        return remove(kind, leaving, steps);
    }
    if let Some(step) = on_request(kind, leaving) {
        steps.push(step);
        return;
    }
    let gone = kind.count_of(leaving);
    let surplus = kind.live().saturating_sub(kind.floor + gone);
    if surplus == 0 {
        return;
    }
    let idle = idle(kind, leaving);
    let too_long = |worker: &&&WorkerView| kind.config.idle_ttl.is_some_and(|ttl| worker.idle_for >= ttl);
    let expired: Vec<WorkerId> = idle.iter().filter(too_long).map(|worker| worker.id).take(surplus).collect();
    if !expired.is_empty() {
        let reason = format!("no query for idle_ttl {:?}", kind.config.idle_ttl.unwrap_or_default());
        steps.push(Step::Shrink { kind: kind.kind, workers: expired, cause: DeathCause::Idle, reason });
        return;
    }
    if kind.quiet_for.is_none_or(|quiet| quiet < kind.config.scale_down_after) {
        return;
    }
    // Keeps as many as were busy at once in the quiet time.
    let spare = kind.live().saturating_sub(kind.floor.max(kind.peak_busy) + gone);
    let workers: Vec<WorkerId> =
        idle.iter().map(|worker| worker.id).take(spare.min(kind.config.scale_down_step.get())).collect();
    if !workers.is_empty() {
        let reason = format!(
            "nothing has waited for scale_down_after {:?}, and at most {} of {} were busy",
            kind.config.scale_down_after,
            kind.peak_busy,
            kind.live()
        );
        steps.push(Step::Shrink { kind: kind.kind, workers, cause: DeathCause::ScaledDown, reason });
    }
}

/// The idle workers that may go, the longest idle first.
fn idle<'a>(kind: &'a KindView, leaving: &[WorkerId]) -> Vec<&'a WorkerView> {
    let succeeded = kind.succeeded();
    let may_go = |worker: &&WorkerView| {
        let paired = worker.replaces.is_some() || succeeded.contains(&worker.id);
        worker.is_free() && !worker.wanted && !worker.drained && !paired && !leaving.contains(&worker.id)
    };
    let mut idle: Vec<&WorkerView> = kind.workers.iter().filter(may_go).collect();
    idle.sort_by_key(|worker| (Reverse(worker.idle_for), worker.id));
    idle
}

/// An operator asked for fewer, or the kind's `max` was lowered: idle workers go first, then starting ones, then busy ones
/// when they end their queries.
fn on_request(kind: &KindView, leaving: &[WorkerId]) -> Option<Step> {
    let target = kind.shrink_to?;
    let surplus = kind.live().checked_sub(target + kind.count_of(leaving)).filter(|surplus| *surplus > 0)?;
    let counts = |worker: &&WorkerView| !worker.is_stopping() && !worker.drained && !kind.is_surge(worker);
    let mut live: Vec<&WorkerView> =
        kind.workers.iter().filter(counts).filter(|worker| !leaving.contains(&worker.id)).collect();
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
fn remove(kind: &KindView, leaving: &[WorkerId], steps: &mut Vec<Step>) {
    let stays = |worker: &&WorkerView| !worker.is_stopping() && !leaving.contains(&worker.id);
    let workers: Vec<WorkerId> = kind.workers.iter().filter(stays).map(|worker| worker.id).collect();
    if kind.unfinished == 0 && !workers.is_empty() {
        let reason = "its kind is no longer configured".to_owned();
        steps.push(Step::Retire { kind: kind.kind, workers, cause: DeathCause::Reloaded, reason });
    }
}
