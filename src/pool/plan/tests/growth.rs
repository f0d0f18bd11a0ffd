//! Growth: workers are started up to the minimum, and for queries that wait.

use std::time::Duration;

use super::*;

const LOADED: &str = "min = 1\nmax = 40\nscale_up_after = \"100ms\"\nscale_up_depth = 50\nscale_up_step = 10";

/// One busy worker, and so many queries that have waited for so many milliseconds.
fn loaded(open: usize, oldest_ms: u64) -> KindView {
    kind("k", LOADED).with([busy(1)]).waiting(open, Duration::from_millis(oldest_ms))
}

#[test]
fn missing_workers_of_the_minimum_are_started() {
    for (present, expected) in [(0, 4), (1, 3), (3, 1), (4, 0), (6, 0)] {
        let steps = plan(&pool([kind("k", "min = 4\nmax = 8").with((0..present).map(free))]));
        assert_eq!(grown(&steps, 0), expected, "{present} present");
    }
}

#[test]
fn workers_that_stop_do_not_count_for_the_minimum_and_those_that_start_do() {
    let view = kind("k", "min = 3\nmax = 8").with([stopping(1), starting(2)]);
    assert_eq!(grown(&plan(&pool([view])), 0), 2);
}

#[test]
fn more_than_the_minimum_are_kept_if_someone_asked() {
    let view = KindView { floor: 5, ..kind("k", "min = 2\nmax = 8").with([free(1)]) };
    let steps = plan(&pool([view]));
    assert_eq!(grown(&steps, 0), 4);
    assert!(matches!(&steps[0], Step::Grow { reason, .. } if reason == "1 of the 5 workers that were asked for"));
}

#[test]
fn kind_without_workers_gets_one_for_each_waiting_query_at_once() {
    for (open, expected) in [(1, 1), (7, 7), (40, 20), (400, 20)] {
        let view = kind("k", "min = 0\nmax = 20").waiting(open, Duration::ZERO);
        assert_eq!(grown(&plan(&pool([view])), 0), expected, "{open} waiting");
    }
}

#[test]
fn kind_without_workers_and_queries_gets_none() {
    assert_eq!(plan(&pool([kind("k", "min = 0")])), []);
}

#[test]
fn further_worker_starts_when_the_oldest_query_has_waited_long_enough() {
    for (waited, expected) in [(0, 0), (99, 0), (100, 1), (5_000, 1)] {
        assert_eq!(grown(&plan(&pool([loaded(3, waited)])), 0), expected, "{waited} ms");
    }
}

#[test]
fn next_worker_starts_only_after_the_same_time_again() {
    for (since, expected) in [(0, 0), (99, 0), (100, 1)] {
        let view = KindView { since_growth: Some(Duration::from_millis(since)), ..loaded(3, 900) };
        assert_eq!(grown(&plan(&pool([view])), 0), expected, "{since} ms since the last");
    }
}

#[test]
fn worker_that_starts_for_each_waiting_query_is_enough() {
    let view = loaded(2, 900).with([starting(2), starting(3)]);
    assert_eq!(plan(&pool([view])), []);
    let view = loaded(3, 900).with([starting(2), starting(3)]);
    assert_eq!(grown(&plan(&pool([view])), 0), 1);
}

#[test]
fn burst_starts_a_step_of_workers() {
    for (open, expected) in [(50, 1), (51, 10), (5_000, 10)] {
        assert_eq!(grown(&plan(&pool([loaded(open, 100)])), 0), expected, "{open} waiting");
    }
    let paced = KindView { since_growth: Some(Duration::from_millis(50)), ..loaded(5_000, 900) };
    assert_eq!(grown(&plan(&pool([paced])), 0), 0, "a step is paced too");
}

#[test]
fn nothing_starts_for_queries_that_a_free_worker_will_take() {
    let view = KindView { ready: true, ..loaded(60, 900).with([free(2)]) };
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn growth_never_passes_the_maximum_of_the_kind() {
    for (present, expected) in [(35, 5), (39, 1), (40, 0), (45, 0)] {
        let view = kind("k", LOADED).with((0..present).map(busy)).waiting(500, seconds(1.0));
        assert_eq!(grown(&plan(&pool([view])), 0), expected, "{present} present");
    }
}

#[test]
fn workers_that_are_leaving_still_take_a_place_of_the_kind() {
    let view = kind("k", "min = 2\nmax = 2").with([busy(1), stopping(2)]);
    assert_eq!(plan(&pool([view])), [], "its place is free when it is gone");
}

#[test]
fn growth_never_passes_the_size_of_the_pool() {
    let full = |max_workers| PoolView { max_workers, ..pool([loaded(500, 900), kind("other", "min = 0")]) };
    for (max_workers, expected) in [(1, 0), (4, 3), (11, 10), (100, 10)] {
        assert_eq!(grown(&plan(&full(max_workers)), 0), expected, "max_workers {max_workers}");
    }
}

#[test]
fn growth_never_passes_the_memory_budget() {
    let settings = format!("{LOADED}\nmemory = \"100MiB\"");
    for (budget, expected) in [(100, 0), (199, 0), (200, 1), (599, 4), (2_000, 10)] {
        let view = kind("k", &settings).with([busy(1)]).waiting(500, seconds(1.0));
        let view = PoolView { memory_budget: Some(budget * MIB), ..pool([view]) };
        assert_eq!(grown(&plan(&view), 0), expected, "a budget of {budget} MiB");
    }
}

#[test]
fn no_more_start_at_the_same_time_than_are_allowed() {
    let view = pool([kind("a", "min = 3").with([starting(1)]), kind("b", "min = 3")]);
    let steps = plan(&PoolView { max_starting: 4, ..view });
    assert_eq!((grown(&steps, 0), grown(&steps, 1)), (2, 1), "the first kind comes first");
}

#[test]
fn kind_whose_last_start_failed_tries_one_at_a_time() {
    let troubled = KindView { starts: StartHealth::Failing, ..kind("k", "min = 4\nmax = 8") };
    assert_eq!(grown(&plan(&pool([troubled.clone()])), 0), 1);
    assert_eq!(plan(&pool([troubled.with([starting(1)])])), []);
}

#[test]
fn delayed_start_waits_and_evicts_no_worker() {
    let view = KindView { starts: StartHealth::Delayed, ..kind("k", "min = 4\nmax = 8") };
    let other = kind("other", "min = 0\nmax = 4").with([free(1)]);
    assert_eq!(plan(&PoolView { max_workers: 1, ..pool([view, other]) }), []);
}

#[test]
fn kind_without_a_worker_comes_before_one_that_wants_more() {
    let rich = loaded(500, 900);
    let poor = kind("poor", "min = 0").waiting(1, Duration::ZERO);
    let steps = plan(&PoolView { max_workers: 2, ..pool([rich, poor]) });
    assert_eq!((grown(&steps, 0), grown(&steps, 1)), (0, 1));
}

#[test]
fn drained_worker_counts_for_no_minimum_and_still_takes_a_place() {
    let drained = WorkerView { drained: true, ..free(1) };
    let view = kind("k", "min = 1\nmax = 2").with([drained]);
    assert_eq!(grown(&plan(&pool([view])), 0), 1);
    let view = kind("k", "min = 1\nmax = 1").with([drained]);
    assert_eq!(plan(&pool([view])), [], "the kind is full");
}
