//! Bounds of the pool that were lowered while it ran.

use super::*;

fn over(workers: Vec<WorkerView>, min: usize) -> KindView {
    kind("k", &format!("min = {min}\nmax = 8\nmemory = \"100MiB\"")).with(workers)
}

#[test]
fn idle_workers_beyond_the_pools_maximum_go_as_the_strategy_says() {
    let workers = vec![idle_for(1.0, free(1)), idle_for(9.0, free(2)), busy(3), idle_for(5.0, free(4))];
    let view = |max_workers, min| PoolView { max_workers, ..pool([over(workers.clone(), min)]) };
    assert_eq!(plan(&view(4, 0)), []);
    assert_eq!(evicted(&plan(&view(2, 0))), [2, 4]);
    assert_eq!(evicted(&plan(&view(2, 3))), [2], "no fewer than are kept");
    let steps = plan(&view(3, 0));
    let [Step::Evict { reason, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(reason, "the pool may have 3 workers (pool.max_workers)");
}

#[test]
fn busy_ones_go_one_after_the_other_when_they_are_done() {
    let steps = plan(&PoolView { max_workers: 1, ..pool([over(vec![busy(1), busy(2), free(3)], 0)]) });
    assert_eq!((evicted(&steps), giving_way(&steps)), (vec![3], vec![0]));
    let leaving = plan(&PoolView { max_workers: 1, ..pool([over(vec![busy(1), stopping(2)], 0)]) });
    assert_eq!(leaving, [], "one that is leaving is enough");
}

#[test]
fn lower_budget_is_kept_in_the_same_way() {
    let light = kind("light", "min = 0").with([idle_for(99.0, free(9))]);
    let heavy = over(vec![free(1), free(2), busy(3)], 0);
    let view = |mib| PoolView { memory_budget: Some(mib * MIB), ..pool([light.clone(), heavy.clone()]) };
    assert_eq!(plan(&view(300)), []);
    assert_eq!(evicted(&plan(&view(299))), [1], "and not one that takes no memory");
    let steps = plan(&view(99));
    assert_eq!((evicted(&steps), giving_way(&steps)), (vec![1, 2], vec![1]));
}

#[test]
fn eviction_to_the_bounds_makes_no_room_for_others() {
    let wants = over(vec![busy(1), busy(2), stopping(3)], 0).waiting(9, seconds(60.0));
    let none = kind("none", "min = 0").waiting(1, seconds(1.0));
    let view = PoolView { max_workers: 2, ..pool([wants, none]) };
    assert_eq!(plan(&view), []);
    assert!(!view.has_capacity_for(&view.kinds[0]), "nor is it looked at again until one has gone");
}
