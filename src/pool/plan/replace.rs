//! Replaces workers that are due: the new one is ready before the old one stops, wherever there is room for both.

use std::num::NonZeroU64;

use crate::{config::KindConfig, model::DeathCause};

use super::{
    Step,
    room::{Lack, Room},
    view::{KindView, Starts, WorkerView},
};

pub(super) fn plan(kind: &KindView, room: &mut Room, steps: &mut Vec<Step>) {
    for worker in kind.workers.iter().filter(|worker| !worker.is_stopping()) {
        let Some(cause) = worker.due else { continue };
        if let Some(step) = replace(kind, worker, cause, room, steps) {
            steps.push(step);
        }
    }
}

fn replace(kind: &KindView, worker: &WorkerView, cause: DeathCause, room: &mut Room, steps: &[Step]) -> Option<Step> {
    let retire = |reason: &str| Step::Retire {
        kind: kind.kind,
        workers: vec![worker.id],
        cause,
        reason: format!("{}; {reason}", why(cause, &kind.config)),
    };
    if worker.bound {
        // Two workers of one key must not live at the same time.
        return Some(retire("its key gets another worker when it is next wanted"));
    }
    if kind.removed || worker.is_starting() {
        return Some(retire("nobody needs it any more")).filter(|_| kind.removed || cause == DeathCause::Reloaded);
    }
    if let Some(successor) = kind.successor_of(worker.id) {
        let ready = successor.is_up();
        return ready.then(|| retire(&format!("worker {} is ready in its place", successor.id)));
    }
    if kind.starts == Starts::PutOff || !worker.is_up() {
        return None;
    }
    if must_wait(kind, steps) {
        return None;
    }
    match room.take(kind.memory()) {
        Ok(()) => Some(Step::Replace { kind: kind.kind, worker: worker.id, reason: why(cause, &kind.config) }),
        Err(Lack::Soon | Lack::Starts) => None,
        Err(Lack::Places | Lack::Memory) => {
            room.will_leave(worker);
            Some(retire("the pool has no room for two, so it goes first"))
        }
    }
}

/// Workers are replaced one at a time. Those that serve one query only are replaced as they are used, but there is never
/// more than one worker too many, or each query that lasts would add one.
fn must_wait(kind: &KindView, steps: &[Step]) -> bool {
    let planned = steps.iter().filter(|step| concerns(step, kind.kind)).count();
    if kind.config.max_queries.is_some_and(|max| max.get() == 1) {
        return kind.workers.len() + planned > kind.config.max.get();
    }
    let under_way = |worker: &WorkerView| worker.is_starting() || (worker.is_stopping() && worker.due.is_some());
    planned > 0 || kind.workers.iter().any(under_way)
}

fn concerns(step: &Step, wanted: usize) -> bool {
    matches!(step, Step::Replace { kind, .. } | Step::Retire { kind, .. } if *kind == wanted)
}

fn why(cause: DeathCause, config: &KindConfig) -> String {
    match cause {
        DeathCause::RecycledQueries => {
            format!("it has had its number of queries (max_queries {})", config.max_queries.map_or(0, NonZeroU64::get))
        }
        DeathCause::RecycledAge => format!("it is old (max_age {:?})", config.max_age.unwrap_or_default()),
        DeathCause::RecycledMemory => {
            format!("it uses much memory (memory_soft {} bytes)", config.memory_soft.unwrap_or_default())
        }
        DeathCause::Reloaded => "its kind's configuration changed".to_owned(),
        DeathCause::Restarted => "someone asked for its restart".to_owned(),
        cause => cause.name().to_owned(),
    }
}
