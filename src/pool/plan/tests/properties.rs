//! Whatever a pool looks like, no decision breaks a limit, stops a worker that works, or goes below what is kept.

use std::collections::HashSet;

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

const STATES: [WorkerState; 8] = [
    WorkerState::Spawning,
    WorkerState::Loading,
    WorkerState::Ready,
    WorkerState::Ready,
    WorkerState::Processing,
    WorkerState::Idle,
    WorkerState::Evicting,
    WorkerState::Failed,
];

const DUE: [DeathCause; 3] = [DeathCause::RecycledAge, DeathCause::RecycledQueries, DeathCause::Reloaded];

/// A worker; its id is given later.
fn some_worker() -> impl Strategy<Value = WorkerView> {
    let flags = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let due = option::weighted(0.2, select(&DUE[..]));
    (select(&STATES[..]), flags, 0..1_000u64, 0..4u64, due).prop_map(
        |(state, (bound, wanted, drained, succeeds), seconds, number, due)| WorkerView {
            bound,
            wanted,
            drained,
            idle_for: Duration::from_secs(seconds),
            age: Duration::from_secs(seconds * 2),
            queries: number,
            rss: number,
            due,
            // To be put right when there are ids.
            replaces: succeeds.then_some(WorkerId(0)),
            ..worker(0, state)
        },
    )
}

fn some_kind() -> impl Strategy<Value = KindView> {
    let size = (0..4usize, 1..8usize, any::<bool>(), any::<bool>(), 0..4u64);
    let starts = select(&[StartHealth::Good, StartHealth::Good, StartHealth::Failing, StartHealth::Delayed][..]);
    let flags = (prop::bool::weighted(0.1), any::<bool>(), option::weighted(0.2, 0..4usize), 0..3usize);
    let times = (option::of(0..200u64), option::of(0..200u64), 0..20u64, 0..8usize);
    (size, starts, flags, times, 0..80usize, vec(some_worker(), 0..8)).prop_map(
        |(size, starts, (removed, ready, shrink_to, unfinished), times, open, workers)| {
            let (min, more, keyed, once, memory) = size;
            let queries = if once { "max_queries = 1" } else { "" };
            let settings = format!(
                "min = {min}\nmax = {}\nkeyed = {keyed}\nmemory = \"{}MiB\"\nidle_ttl = \"5m\"\n{queries}",
                min + more,
                memory + 1
            );
            let (since_growth, quiet_for, waited, peak_busy) = times;
            let view = kind("k", &settings);
            let waited = Duration::from_secs(waited);
            let view = if keyed {
                let keys: Vec<String> = (0..open % 10).map(|key| format!("key {key}")).collect();
                view.keys(&keys.iter().map(String::as_str).collect::<Vec<_>>(), waited)
            } else {
                view.waiting(open, waited)
            };
            let workers = workers.into_iter().map(|worker| WorkerView { bound: worker.bound && keyed, ..worker });
            KindView {
                floor: if removed { 0 } else { min },
                shrink_to: shrink_to.map(|to| to.max(min)),
                removed,
                unfinished,
                starts,
                ready,
                since_growth: since_growth.map(Duration::from_secs),
                quiet_for: quiet_for.map(Duration::from_secs),
                peak_busy,
                ..view.with(workers)
            }
        },
    )
}

fn some_pool() -> impl Strategy<Value = PoolView> {
    let eviction = select(&[Eviction::Lru, Eviction::Oldest, Eviction::LeastUsed, Eviction::Largest][..]);
    (vec(some_kind(), 1..4), 1..24usize, 1..6usize, option::of(0..64u64), eviction).prop_map(
        |(kinds, max_workers, max_starting, budget, eviction)| {
            let mut view = pool(kinds);
            let mut next = 0;
            for kind in &mut view.kinds {
                let mut before: Option<WorkerId> = None;
                for worker in &mut kind.workers {
                    next += 1;
                    worker.id = WorkerId(next);
                    // A successor follows the worker that it replaces.
                    worker.replaces = worker.replaces.and(before.take()).filter(|_| !worker.bound);
                    before = Some(worker.id).filter(|_| worker.due.is_some() && !worker.bound);
                }
            }
            PoolView { max_workers, max_starting, memory_budget: budget.map(|mib| mib * MIB), eviction, ..view }
        },
    )
}

/// The workers that a plan starts, as (kind, number).
fn starts(steps: &[Step]) -> Vec<(usize, usize)> {
    let start = |step: &Step| match step {
        Step::Grow { kind, keys, .. } => Some((*kind, keys.len())),
        Step::Replace { kind, .. } => Some((*kind, 1)),
        _ => None,
    };
    steps.iter().filter_map(start).collect()
}

fn find(view: &PoolView, id: u64) -> (&KindView, &WorkerView) {
    let all = view.kinds.iter().flat_map(|kind| kind.workers.iter().map(move |worker| (kind, worker)));
    all.into_iter().find(|(_, worker)| worker.id.0 == id).unwrap()
}

fn check_limits(view: &PoolView, steps: &[Step]) -> Result<(), TestCaseError> {
    let workers = || view.kinds.iter().flat_map(|kind| &kind.workers);
    let started: usize = starts(steps).iter().map(|(_, number)| number).sum();
    prop_assert!(started <= view.max_workers.saturating_sub(workers().count()), "too many workers");
    let starting = workers().filter(|worker| worker.is_starting()).count();
    prop_assert!(started <= view.max_starting.saturating_sub(starting), "too many at the same time");
    if let Some(budget) = view.memory_budget {
        let needed: u64 = starts(steps).iter().map(|(kind, number)| view.kinds[*kind].memory() * *number as u64).sum();
        let left = budget.saturating_sub(workers().map(|worker| worker.reserved).sum());
        prop_assert!(needed <= left, "too much memory");
    }
    for kind in &view.kinds {
        let max = kind.config.max.get();
        prop_assert!(grown(steps, kind.kind) <= max.saturating_sub(kind.present()), "beyond max");
        let replacing = steps.iter().filter(|step| matches!(step, Step::Replace { kind: of, .. } if *of == kind.kind));
        let replacing = replacing.count();
        let once = kind.config.max_queries.is_some();
        prop_assert!(replacing <= if once { max + 1 } else { 1 }, "too many replaced at once");
        prop_assert!(!once || replacing == 0 || kind.workers.len() + replacing <= max + 1, "too many surplus");
    }
    Ok(())
}

fn check_stops(view: &PoolView, steps: &[Step]) -> Result<(), TestCaseError> {
    let stopped: Vec<u64> = evicted(steps).into_iter().chain(shrunk(steps).iter().map(|(id, _)| *id)).collect();
    for id in &stopped {
        let (_, worker) = find(view, *id);
        prop_assert!(worker.is_free() && !worker.wanted && !worker.drained, "{worker:?}");
    }
    let all: Vec<u64> = stopped.into_iter().chain(retired(steps).iter().map(|(id, _)| *id)).collect();
    let once: HashSet<u64> = all.iter().copied().collect();
    prop_assert_eq!(all.len(), once.len(), "one is stopped twice");
    for (id, cause) in retired(steps) {
        let (kind, worker) = find(view, id);
        let asked = kind.shrink_to.is_some() && cause == DeathCause::ScaledDown;
        prop_assert!(!worker.is_stopping() && (worker.due.is_some() || kind.removed || asked), "{worker:?}");
    }
    Ok(())
}

/// Workers that go for another kind, or because nobody needs them, leave their kind what it is to keep.
fn check_floors(view: &PoolView, steps: &[Step]) -> Result<(), TestCaseError> {
    for kind in &view.kinds {
        let own = |id: &u64| kind.workers.iter().any(|worker| worker.id.0 == *id);
        let evicted_ones = evicted(steps).into_iter().filter(own).count();
        let shrunk_ones = shrunk(steps).iter().filter(|(id, _)| own(id)).count();
        // One key's worker may take the place of another's whatever the floor is.
        let gone = if kind.config.keyed { shrunk_ones } else { evicted_ones + shrunk_ones };
        prop_assert!(gone == 0 || kind.live() >= kind.floor + gone, "kind {} below its floor", kind.kind);
        // Where a worker is replaced in the same pass, that counts too.
        let due = retired(steps).iter().filter(|(id, _)| own(id) && find(view, *id).1.due.is_some()).count();
        let by_hand = kind.shrink_to.is_some();
        prop_assert!(shrunk_ones == 0 || by_hand || kind.live() >= kind.floor + shrunk_ones + due);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_decision_breaks_a_limit_stops_a_worker_that_works_or_goes_below_a_floor(view in some_pool()) {
        let steps = plan(&view);
        check_limits(&view, &steps)?;
        check_stops(&view, &steps)?;
        check_floors(&view, &steps)?;
    }

    #[test]
    fn same_pool_always_gets_the_same_plan(view in some_pool()) {
        prop_assert_eq!(plan(&view), plan(&view.clone()));
    }
}
