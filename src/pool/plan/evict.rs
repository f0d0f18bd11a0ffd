//! Makes room at capacity: an idle worker that is not needed gives its place to a kind or key that has none.

use std::{cmp::Reverse, time::Duration};

use crate::{config::Eviction, model::WorkerId};

use super::{
    Step,
    grow::{Limit, Unmet},
    room::Room,
    view::{KindView, PoolView, WorkerView},
};

/// How long a key waits for a worker to become idle before the next one that is done with a query makes room for it.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn plan(
    view: &PoolView,
    needy: &KindView,
    unmet: Vec<Unmet>,
    room: &mut Room,
    evicted: &mut Vec<WorkerId>,
    steps: &mut Vec<Step>,
) {
    for need in unmet {
        let Some((kind, worker)) = victim(view, needy, &need, evicted) else {
            if need.key.is_some() && need.waited >= PATIENCE {
                let reason = format!("{}, and has waited {:.0?}", need.what, need.waited);
                steps.push(Step::GiveWay { kind: needy.kind, reason });
            }
            return;
        };
        evicted.push(worker.id);
        room.will_leave(worker);
        // The room that it leaves is spoken for.
        let _ = room.take(needy.memory());
        let reason = format!("makes room for kind {}: {}", needy.config.name, need.what);
        steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
    }
}

/// The worker that the strategy picks among those that may go.
fn victim<'a>(
    view: &'a PoolView,
    needy: &KindView,
    need: &Unmet,
    evicted: &[WorkerId],
) -> Option<(&'a KindView, &'a WorkerView)> {
    let candidates = view.kinds.iter().flat_map(|kind| kind.workers.iter().map(move |worker| (kind, worker)));
    let may_go = candidates.filter(|(kind, worker)| {
        let same = kind.kind == needy.kind;
        // Within a keyed kind one key's worker takes the place of another's, so the number stays.
        let allowed = if same { kind.config.keyed && worker.bound } else { above_floor(kind, evicted) };
        let helps = match need.lack {
            Limit::Kind => same,
            Limit::Places => true,
            Limit::Memory => worker.reserved > 0,
        };
        let idle = worker.is_free() && !worker.wanted && !worker.drained && worker.replaces.is_none();
        allowed && helps && idle && !evicted.contains(&worker.id)
    });
    may_go.min_by_key(|(_, worker)| rank(view.eviction, worker))
}

fn above_floor(kind: &KindView, evicted: &[WorkerId]) -> bool {
    let gone = kind.workers.iter().filter(|worker| evicted.contains(&worker.id)).count();
    kind.live() > kind.floor + gone
}

/// The least goes first; of equals the one that was started first.
fn rank(strategy: Eviction, worker: &WorkerView) -> (Reverse<Duration>, u64, Reverse<u64>, u64) {
    let (time, count, size) = match strategy {
        Eviction::Lru => (worker.idle_for, 0, 0),
        Eviction::Oldest => (worker.age, 0, 0),
        Eviction::LeastUsed => (Duration::ZERO, worker.queries, 0),
        Eviction::Largest => (Duration::ZERO, 0, worker.rss),
    };
    (Reverse(time), count, Reverse(size), worker.id.0)
}
