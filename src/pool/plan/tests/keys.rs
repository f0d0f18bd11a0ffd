//! Workers for keys: one for each key that waits, and another key's place where there is no capacity.

use std::time::Duration;

use super::*;

fn keyed(settings: &str) -> KindView {
    kind("k", &format!("keyed = true\n{settings}"))
}

#[test]
fn each_waiting_key_without_a_worker_gets_one_of_its_own_at_once() {
    let view = keyed("min = 0\nmax = 8").keys(&["a", "b", "c"], Duration::ZERO);
    assert_eq!(served(&plan(&pool([view]))), ["a", "b", "c"]);
    let view = keyed("min = 0\nmax = 8").with([bound(busy(1)), bound(free(2))]).keys(&["a"], Duration::ZERO);
    assert_eq!(served(&plan(&pool([view]))), ["a"], "others' workers are of no use to it");
}

#[test]
fn workers_that_start_for_no_key_in_particular_take_the_first_ones() {
    let view = keyed("min = 0\nmax = 8").with([starting(1), bound(starting(2))]).keys(&["a", "b", "c"], Duration::ZERO);
    assert_eq!(served(&plan(&pool([view]))), ["b", "c"]);
}

#[test]
fn free_worker_without_a_key_takes_the_first_one_before_others_are_started() {
    let view = KindView { ready: true, ..keyed("min = 1\nmax = 8").with([free(1)]).keys(&["a", "b"], Duration::ZERO) };
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn queries_of_a_key_that_has_a_worker_start_none() {
    let view = keyed("min = 0\nmax = 8").with([bound(busy(1))]).waiting(0, seconds(9.0));
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn at_the_maximum_the_idle_worker_of_another_key_makes_room() {
    let workers = [bound(busy(1)), bound(idle_for(5.0, free(2))), bound(idle_for(9.0, free(3)))];
    let view = keyed("min = 0\nmax = 3").with(workers).keys(&["a"], Duration::ZERO);
    assert_eq!(evicted(&plan(&pool([view]))), [3]);
}

#[test]
fn worker_that_a_query_of_its_key_waits_for_stays() {
    let wanted = WorkerView { wanted: true, ..bound(idle_for(9.0, free(1))) };
    let view = keyed("min = 0\nmax = 2").with([wanted, bound(free(2))]).keys(&["a"], Duration::ZERO);
    assert_eq!(evicted(&plan(&pool([view]))), [2]);
}

#[test]
fn several_keys_evict_several_workers_but_none_for_a_place_that_is_coming() {
    let full = |leaving: u64| {
        let state = |id| if id < leaving { stopping(id) } else { free(id) };
        keyed("min = 0\nmax = 4").with((0..4).map(state).map(bound))
    };
    for (leaving, expected) in [(0, vec![0, 1, 2]), (1, vec![1, 2]), (2, vec![2]), (3, vec![])] {
        let view = full(leaving).keys(&["a", "b", "c"], Duration::ZERO);
        assert_eq!(evicted(&plan(&pool([view]))), expected, "{leaving} are leaving");
    }
}

#[test]
fn minimum_does_not_keep_a_key_from_taking_anothers_place() {
    let view = keyed("min = 2\nmax = 2").with([bound(free(1)), bound(free(2))]).keys(&["a"], Duration::ZERO);
    assert_eq!(evicted(&plan(&pool([view]))), [1], "the number stays");
}

#[test]
fn worker_of_the_kind_that_is_not_bound_is_not_evicted_for_a_key() {
    let view = keyed("min = 0\nmax = 1").with([free(1)]).keys(&["a"], Duration::ZERO);
    assert_eq!(evicted(&plan(&pool([view]))), Vec::<u64>::new());
}

#[test]
fn in_a_full_pool_an_idle_worker_of_the_same_kind_or_of_another_goes() {
    let view = keyed("min = 0\nmax = 8").with([bound(idle_for(2.0, free(1)))]).keys(&["a"], Duration::ZERO);
    let other = kind("other", "min = 0").with([idle_for(3.0, free(2))]);
    let full = PoolView { max_workers: 2, ..pool([view.clone(), other]) };
    assert_eq!(evicted(&plan(&full)), [2]);
    let other = kind("other", "min = 1").with([idle_for(3.0, free(2))]);
    let full = PoolView { max_workers: 2, ..pool([view, other]) };
    assert_eq!(evicted(&plan(&full)), [1], "the other kind keeps its minimum");
}
