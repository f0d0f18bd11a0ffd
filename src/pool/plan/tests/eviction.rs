//! Which workers make room at capacity, and which never do.

use std::time::Duration;

use super::*;

/// A kind that has no worker and a query that waits for one.
fn needy() -> KindView {
    kind("needy", "min = 0\nmax = 4").waiting(1, Duration::ZERO)
}

/// A full pool: the needy kind, and another one with these workers.
fn full(settings: &str, workers: Vec<WorkerView>) -> PoolView {
    let max_workers = workers.len();
    PoolView { max_workers, ..pool([needy(), kind("other", settings).with(workers)]) }
}

fn subjects() -> Vec<WorkerView> {
    let subject = |id, idle: f64, age: f64, queries, rss| WorkerView {
        age: seconds(age),
        queries,
        rss,
        ..idle_for(idle, free(id))
    };
    vec![
        subject(1, 5.0, 50.0, 7, 300),
        subject(2, 9.0, 40.0, 9, 200), // Unused for the longest time.
        subject(3, 1.0, 90.0, 8, 100), // The oldest.
        subject(4, 2.0, 10.0, 2, 400), // The least used.
        subject(5, 3.0, 20.0, 5, 900), // The largest.
    ]
}

#[test]
fn each_strategy_picks_the_worker_that_it_is_named_for() {
    let strategies = [(Eviction::Lru, 2), (Eviction::Oldest, 3), (Eviction::LeastUsed, 4), (Eviction::Largest, 5)];
    for (eviction, expected) in strategies {
        let view = PoolView { eviction, ..full("min = 0\nmax = 8", subjects()) };
        assert_eq!(evicted(&plan(&view)), [expected], "{}", eviction.name());
    }
}

#[test]
fn of_equals_the_one_that_was_started_first_goes() {
    for eviction in [Eviction::Lru, Eviction::Oldest, Eviction::LeastUsed, Eviction::Largest] {
        let view = PoolView { eviction, ..full("min = 0\nmax = 8", vec![free(7), free(3), free(5)]) };
        assert_eq!(evicted(&plan(&view)), [3], "{}", eviction.name());
    }
}

#[test]
fn idle_worker_is_as_good_a_choice_as_a_ready_one() {
    let idle = idle_for(99.0, worker(1, WorkerState::Idle));
    assert_eq!(evicted(&plan(&full("min = 0", vec![idle, free(2)]))), [1]);
}

#[test]
fn no_other_worker_is_ever_evicted() {
    let wanted = WorkerView { wanted: true, ..free(1) };
    let drained = WorkerView { drained: true, ..free(1) };
    let successor = WorkerView { replaces: Some(WorkerId(9)), ..free(1) };
    let cases = [
        ("busy", busy(1)),
        ("spawning", starting(1)),
        ("loading", worker(1, WorkerState::Loading)),
        ("wanted", wanted),
        ("drained by hand", drained),
        ("just started in place of another", successor),
    ];
    for (what, worker) in cases {
        let steps = plan(&full("min = 0", vec![idle_for(99.0, worker)]));
        assert_eq!(steps, [], "{what}");
    }
}

#[test]
fn kind_keeps_its_minimum() {
    for (min, expected) in [(0, vec![1]), (1, vec![1]), (2, vec![])] {
        let view = full(&format!("min = {min}\nmax = 8"), vec![free(1), free(2)]);
        assert_eq!(evicted(&plan(&view)), expected, "min {min}");
    }
    let asked = KindView { floor: 2, ..kind("other", "min = 0").with([free(1), free(2)]) };
    let view = PoolView { max_workers: 2, ..pool([needy(), asked]) };
    assert_eq!(evicted(&plan(&view)), Vec::<u64>::new(), "nor what someone asked for");
}

#[test]
fn two_needs_do_not_take_a_kind_below_its_minimum() {
    let other = kind("other", "min = 1\nmax = 8").with([free(1), free(2)]);
    let view = PoolView { max_workers: 2, ..pool([needy(), needy(), other]) };
    assert_eq!(evicted(&plan(&view)), [1]);
}

#[test]
fn no_worker_is_evicted_for_a_kind_that_only_wants_more() {
    let rich = kind("rich", "min = 1\nmax = 8").with([busy(1)]).waiting(500, seconds(60.0));
    let other = kind("other", "min = 0").with([free(2)]);
    assert_eq!(plan(&PoolView { max_workers: 2, ..pool([rich, other]) }), []);
}

#[test]
fn minimum_that_cannot_be_met_evicts_others() {
    let view = kind("needy", "min = 2\nmax = 4").with([free(1)]);
    let other = kind("other", "min = 0").with([free(2), free(3)]);
    assert_eq!(evicted(&plan(&PoolView { max_workers: 3, ..pool([view, other]) })), [2]);
}

#[test]
fn leaving_worker_is_room_enough() {
    let view = full("min = 0\nmax = 8", vec![stopping(1), free(2)]);
    assert_eq!(plan(&view), [], "it starts when the other one is gone");
}

#[test]
fn room_that_is_coming_is_not_promised_twice() {
    let other = kind("other", "min = 0\nmax = 8").with([stopping(1), free(2), free(3)]);
    let view = PoolView { max_workers: 3, ..pool([needy(), needy(), other]) };
    assert_eq!(evicted(&plan(&view)), [2], "the first need waits for worker 1, the second evicts");
}

#[test]
fn room_of_a_leaving_worker_is_kept_for_its_own_kind() {
    let own = kind("own", "min = 1\nmax = 1").with([stopping(1)]);
    let spare = kind("spare", "min = 0").with([free(2)]);
    let view = PoolView { max_workers: 2, ..pool([own, needy(), spare]) };
    assert_eq!(evicted(&plan(&view)), [2]);
}

/// Another kind's workers of 100 MiB each fill a budget.
fn out_of_memory(need: u64, min: usize) -> PoolView {
    let needy = kind("needy", &format!("min = 0\nmax = 4\nmemory = \"{need}MiB\"")).waiting(1, Duration::ZERO);
    let other = kind("other", &format!("min = {min}\nmax = 8\nmemory = \"100MiB\"")).with((1..=4).map(free));
    PoolView { memory_budget: Some(450 * MIB), ..pool([needy, other]) }
}

#[test]
fn as_many_are_evicted_as_the_memory_takes() {
    for (need, expected) in [(50, vec![]), (51, vec![1]), (150, vec![1]), (151, vec![1, 2]), (450, vec![1, 2, 3, 4])] {
        assert_eq!(evicted(&plan(&out_of_memory(need, 0))), expected, "{need} MiB");
    }
}

#[test]
fn no_worker_is_evicted_in_vain() {
    assert_eq!(evicted(&plan(&out_of_memory(251, 2))), Vec::<u64>::new(), "two may go, and that is not enough");
    assert_eq!(evicted(&plan(&out_of_memory(250, 2))), [1, 2]);
}

#[test]
fn worker_that_sets_no_memory_free_is_not_evicted_for_memory() {
    let needy = kind("needy", "min = 0\nmax = 4\nmemory = \"100MiB\"").waiting(1, Duration::ZERO);
    let light = kind("light", "min = 0").with([idle_for(99.0, free(1))]);
    let heavy = kind("heavy", "min = 0\nmemory = \"100MiB\"").with([free(2)]);
    let view = PoolView { memory_budget: Some(100 * MIB), ..pool([needy, light, heavy]) };
    assert_eq!(evicted(&plan(&view)), [2]);
}

#[test]
fn reason_names_the_kind_that_needs_the_room() {
    let steps = plan(&full("min = 0", vec![free(1)]));
    let [Step::Evict { reason, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(reason, "makes room for kind needy: no worker, and 1 waiting");
}
