//! Makes room at capacity: idle workers that are not needed give their places to a kind or key that has none.

use std::{cmp::Reverse, time::Duration};

use crate::{config::Eviction, model::WorkerId};

use super::{
    Step,
    grow::{Limit, Unmet},
    room::{Lack, Room},
    view::{KindView, PoolView, WorkerView},
};

/// How long a query waits for a worker to become idle before the next one that is done with its query makes room for it.
const PATIENCE: Duration = Duration::from_secs(5);

type Victim<'a> = (&'a KindView, &'a WorkerView);

pub(super) fn plan(
    view: &PoolView,
    needy: &KindView,
    unmet: Vec<Unmet>,
    room: &mut Room,
    leaving: &mut Vec<WorkerId>,
    steps: &mut Vec<Step>,
) {
    for need in unmet {
        let Some(victims) = victims(view, needy, &need, room, leaving) else {
            steps.extend(give_way(view, needy, &need, room, leaving));
            return;
        };
        for (kind, worker) in victims {
            leaving.push(worker.id);
            room.will_leave(worker);
            let reason = format!("makes room for kind {}: {}", needy.config.name, need.what);
            steps.push(Step::Evict { kind: kind.kind, worker: worker.id, reason });
        }
        // The room that they leave is spoken for.
        let _ = room.take(needy.memory());
    }
}

/// As many as it takes to make room, or none if even all that may go would not be enough.
fn victims<'a>(
    view: &'a PoolView,
    needy: &KindView,
    need: &Unmet,
    room: &Room,
    leaving: &[WorkerId],
) -> Option<Vec<Victim<'a>>> {
    let mut room = room.clone();
    let mut leaving = leaving.to_vec();
    let mut lack = need.lack;
    let mut found = Vec::new();
    loop {
        let (kind, worker) = victim(view, needy, lack, &leaving)?;
        leaving.push(worker.id);
        room.will_leave(worker);
        found.push((kind, worker));
        lack = match room.clone().take(needy.memory()) {
            Err(Lack::Places) => Limit::Places,
            Err(Lack::Memory) => Limit::Memory,
            Ok(()) | Err(Lack::Soon | Lack::Starts) => return Some(found),
        };
    }
}

/// The worker that the strategy picks among those that may go.
fn victim<'a>(view: &'a PoolView, needy: &KindView, lack: Limit, leaving: &[WorkerId]) -> Option<Victim<'a>> {
    let candidates = view.kinds.iter().flat_map(|kind| kind.workers.iter().map(move |worker| (kind, worker)));
    let may_go = candidates.filter(|(kind, worker)| {
        let same = kind.kind == needy.kind;
        // Within a keyed kind one key's worker takes the place of another's, so the number stays.
        let allowed = if same { kind.config.keyed && worker.bound } else { spare(kind, leaving) > 0 };
        let helps = match lack {
            Limit::Kind => same,
            Limit::Places => true,
            Limit::Memory => worker.reserved > 0,
        };
        allowed && helps && is_idle(worker) && !leaving.contains(&worker.id)
    });
    may_go.min_by_key(|(_, worker)| rank(view.eviction, worker))
}

/// Whether it may go at all: nobody needs it, and nobody said that it is to stay.
pub(super) fn is_idle(worker: &WorkerView) -> bool {
    worker.is_free() && !worker.wanted && !worker.drained && worker.replaces.is_none()
}

/// How many workers a kind has beyond what it is to keep.
pub(super) fn spare(kind: &KindView, leaving: &[WorkerId]) -> usize {
    kind.live().saturating_sub(kind.floor + kind.count_of(leaving))
}

/// The least goes first; of equals the one that was started first.
pub(super) fn rank(strategy: Eviction, worker: &WorkerView) -> (Reverse<Duration>, u64, Reverse<u64>, u64) {
    let (time, count, size) = match strategy {
        Eviction::Lru => (worker.idle_for, 0, 0),
        Eviction::Oldest => (worker.age, 0, 0),
        Eviction::LeastUsed => (Duration::ZERO, worker.queries, 0),
        Eviction::Largest => (Duration::ZERO, 0, worker.rss),
    };
    (Reverse(time), count, Reverse(size), worker.id.0)
}

/// Where workers go from one query to the next, none is ever idle for long. A need that has lasted is met by the next one
/// that is done: of the kind itself if another key has it, else of the kind that has most to spare.
fn give_way(view: &PoolView, needy: &KindView, need: &Unmet, room: &Room, leaving: &[WorkerId]) -> Option<Step> {
    if need.waited < PATIENCE {
        return None;
    }
    let own = needy.workers.iter().any(|worker| worker.bound && worker.is_up() && !worker.drained);
    let own = own && (!need.for_floor || !needy.demand.lanes.is_empty());
    let others = || view.kinds.iter().filter(|kind| kind.kind != needy.kind && need.lack != Limit::Kind);
    let most = || {
        let helpful = others().filter(|kind| spare(kind, leaving) > 0 && frees(kind, need.lack));
        helpful.max_by_key(|kind| spare(kind, leaving)).filter(|_| would_do(others(), needy, room, leaving))
    };
    let kind = match most {
        most if need.for_floor => most().or(Some(needy).filter(|_| own))?,
        most => Some(needy).filter(|_| own).or_else(most)?,
    };
    let reason =
        format!("makes room for kind {}: {}, and this has lasted {:.0?}", needy.config.name, need.what, need.waited);
    Some(Step::GiveWay { kind: kind.kind, reason })
}

fn frees(kind: &KindView, lack: Limit) -> bool {
    lack != Limit::Memory || kind.workers.iter().any(|worker| worker.is_up() && worker.reserved > 0)
}

/// Whether there would be room if each of these kinds gave all that it has to spare.
fn would_do<'a>(
    kinds: impl Iterator<Item = &'a KindView>,
    needy: &KindView,
    room: &Room,
    leaving: &[WorkerId],
) -> bool {
    let mut room = room.clone();
    for kind in kinds {
        let up = |worker: &&WorkerView| worker.is_up() && !worker.drained && !leaving.contains(&worker.id);
        let mut workers: Vec<&WorkerView> = kind.workers.iter().filter(up).collect();
        workers.sort_by_key(|worker| Reverse(worker.reserved));
        for worker in workers.into_iter().take(spare(kind, leaving)) {
            room.will_leave(worker);
        }
    }
    !matches!(room.take(needy.memory()), Err(Lack::Places | Lack::Memory))
}
