//! Yielding: in a pool that is always busy, a worker that ends its query makes room for a need that has lasted.

use super::*;

fn keyed(waited: f64) -> KindView {
    kind("k", "keyed = true\nmin = 0\nmax = 2")
        .with([bound(busy(1)), bound(busy(2))])
        .keys(&["a", "b"], seconds(waited))
}

#[test]
fn key_that_has_waited_long_makes_the_worker_of_another_key_yield() {
    assert_eq!(plan(&pool([keyed(4.9)])), []);
    assert_eq!(giving_way(&plan(&pool([keyed(5.0)]))), [0], "one, though two keys wait");
}

#[test]
fn no_worker_yields_where_one_is_idle_or_leaving() {
    let idle = keyed(60.0);
    let idle = KindView { workers: vec![bound(busy(1)), bound(free(2))], ..idle };
    let steps = plan(&pool([KindView {
        demand: DemandView { lanes: vec![("a".into(), seconds(60.0))], ..idle.demand.clone() },
        ..idle
    }]));
    assert_eq!((evicted(&steps), giving_way(&steps)), (vec![2], vec![]));
    let leaving = KindView { workers: vec![bound(stopping(1)), bound(stopping(2))], ..keyed(60.0) };
    assert_eq!(plan(&pool([leaving])), []);
}

#[test]
fn kind_without_a_worker_makes_the_kind_with_most_to_spare_yield() {
    let needy = |waited| kind("needy", "min = 0").waiting(1, seconds(waited));
    let small = kind("small", "min = 1").with([busy(1), busy(2)]);
    let large = kind("large", "min = 1").with([busy(3), busy(4), busy(5)]);
    let full = |waited| PoolView { max_workers: 5, ..pool([needy(waited), small.clone(), large.clone()]) };
    assert_eq!(plan(&full(1.0)), []);
    let steps = plan(&full(5.0));
    assert_eq!(giving_way(&steps), [2]);
    let [Step::RequestYield { reason, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(reason, "makes room for kind needy: no worker, and 1 waiting, and this has lasted 5s");
}

#[test]
fn no_worker_yields_below_its_minimum_or_for_a_kind_at_its_own_maximum() {
    let needy = kind("needy", "min = 0").waiting(1, seconds(60.0));
    let other = kind("other", "min = 2").with([busy(1), busy(2)]);
    assert_eq!(plan(&PoolView { max_workers: 2, ..pool([needy, other]) }), []);
    let drained = WorkerView { drained: true, ..free(1) };
    let full = kind("full", "min = 0\nmax = 1").with([drained]).waiting(1, seconds(60.0));
    let other = kind("other", "min = 0").with([busy(2)]);
    assert_eq!(plan(&pool([full, other])), [], "another kind's place is of no use to it");
}

#[test]
fn kind_below_its_minimum_gets_room_too() {
    let short = |short: f64| KindView { short_for: seconds(short), ..kind("needy", "min = 1") };
    let other = kind("other", "min = 0").with([busy(1), busy(2)]);
    let full = |needy: KindView| plan(&PoolView { max_workers: 2, ..pool([needy, other.clone()]) });
    assert_eq!(giving_way(&full(short(0.0).waiting(1, seconds(60.0)))), [1], "a query has waited");
    assert_eq!(giving_way(&full(short(5.0))), [1], "nobody waits, but it is to be warm");
    assert_eq!(full(short(4.9)), []);
    // A worker of its own would be in vain.
    let keyed = kind("keyed", "keyed = true\nmin = 2").with([bound(busy(1))]);
    let keyed = KindView { short_for: seconds(60.0), ..keyed };
    let other = kind("other", "min = 1").with([busy(2)]);
    assert_eq!(plan(&PoolView { max_workers: 2, ..pool([keyed, other]) }), []);
}

#[test]
fn only_a_kind_that_can_free_what_is_short_yields() {
    let needy = kind("needy", "min = 0\nmemory = \"100MiB\"").waiting(1, seconds(60.0));
    let light = kind("light", "min = 0").with([busy(1), busy(2), busy(3)]);
    let heavy = kind("heavy", "min = 0\nmemory = \"60MiB\"").with([busy(4), busy(5)]);
    let view = PoolView { memory_budget: Some(120 * MIB), ..pool([needy, light, heavy]) };
    assert_eq!(giving_way(&plan(&view)), [2], "not the one with most to spare");
    let one_stays = KindView { floor: 1, ..view.kinds[2].clone() };
    let in_vain = PoolView { kinds: vec![view.kinds[0].clone(), view.kinds[1].clone(), one_stays], ..view };
    assert_eq!(plan(&in_vain), [], "60 MiB would not be enough");
}
