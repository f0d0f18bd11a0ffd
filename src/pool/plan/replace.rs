//! Replaces workers that are due: the new one is ready before the old one stops, if there is room for both.

use std::num::NonZeroU64;

use crate::{config::KindConfig, model::DeathCause};

use super::{
    Planner, Step,
    capacity::Shortage,
    view::{KindView, StartHealth, WorkerView},
};

impl Planner<'_> {
    pub(super) fn replace_due_workers(&mut self, kind: &KindView) {
        for worker in kind.workers.iter().filter(|worker| !worker.is_stopping()) {
            let Some(cause) = worker.due else { continue };
            let step = self.replacement(kind, worker, cause);
            if matches!(step, Some(Step::Retire { .. })) {
                self.leaving.push(worker.id);
            }
            self.steps.extend(step);
        }
    }

    fn replacement(&mut self, kind: &KindView, worker: &WorkerView, cause: DeathCause) -> Option<Step> {
        let retire = |detail: &str| Step::Retire {
            kind: kind.kind,
            workers: vec![worker.id],
            cause,
            reason: format!("{}; {detail}", reason(cause, &kind.config)),
        };
        if worker.bound {
            // A key never has two live workers.
            return Some(retire("its key gets another worker when it is next wanted"));
        }
        if kind.removed || worker.is_starting() {
            let unneeded = kind.removed || cause == DeathCause::Reloaded;
            return unneeded.then(|| retire("nobody needs it any more"));
        }
        if let Some(successor) = kind.successor_of(worker.id) {
            let ready = successor.is_up();
            return ready.then(|| retire(&format!("worker {} is ready in its place", successor.id)));
        }
        if kind.starts == StartHealth::Delayed || !worker.is_up() || self.must_wait(kind) {
            return None;
        }
        match self.capacity.take(kind.memory()) {
            Ok(()) => Some(Step::Replace { kind: kind.kind, worker: worker.id, reason: reason(cause, &kind.config) }),
            Err(Shortage::Pending | Shortage::Starts) => None,
            Err(Shortage::Limit(_)) => {
                self.capacity.add_leaving(worker);
                Some(retire("the pool has no room for two, so it goes first"))
            }
        }
    }

    /// True while another worker of the kind is being replaced: they are replaced one at a time. Workers that serve one
    /// query only are replaced as they are used, with at most one worker too many; else each long query would add one.
    fn must_wait(&self, kind: &KindView) -> bool {
        let planned = self.steps.iter().filter(|step| step.kind() == kind.kind).count();
        if kind.config.max_queries.is_some_and(|max| max.get() == 1) {
            return kind.workers.len() + planned > kind.config.max.get();
        }
        let under_way = |worker: &WorkerView| worker.is_starting() || (worker.is_stopping() && worker.due.is_some());
        planned > 0 || kind.workers.iter().any(under_way)
    }
}

fn reason(cause: DeathCause, config: &KindConfig) -> String {
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
