//! Shrinking: workers that are not needed stop, and enough of them stay.

use std::time::Duration;

use super::*;

const SETTINGS: &str = "min = 2\nmax = 20\nscale_down_after = \"60s\"\nscale_down_step = 5\nidle_ttl = \"10m\"";

fn quiet(quiet_for: f64, workers: u64) -> KindView {
    let workers = (1..=workers).map(free);
    KindView { quiet_for: Some(seconds(quiet_for)), ready: true, ..kind("k", SETTINGS).with(workers) }
}

fn scaled_down(ids: &[u64]) -> Vec<(u64, DeathCause)> {
    ids.iter().map(|id| (*id, DeathCause::ScaledDown)).collect()
}

#[test]
fn kind_shrinks_by_a_step_after_a_quiet_time_and_not_before() {
    assert_eq!(plan(&pool([quiet(59.9, 10)])), []);
    assert_eq!(shrunk(&plan(&pool([quiet(60.0, 10)]))), scaled_down(&[1, 2, 3, 4, 5]));
    let loud = KindView { quiet_for: None, ..quiet(0.0, 10) };
    assert_eq!(plan(&pool([loud])), []);
}

#[test]
fn kind_shrinks_no_further_than_to_its_floor() {
    for (workers, expected) in [(7, 5), (5, 3), (3, 1), (2, 0), (1, 0)] {
        let steps = plan(&pool([KindView { floor: 2.min(workers), ..quiet(60.0, workers as u64) }]));
        assert_eq!(shrunk(&steps).len(), expected, "of {workers}");
    }
    let asked = KindView { floor: 6, ..quiet(60.0, 8) };
    assert_eq!(shrunk(&plan(&pool([asked]))).len(), 2, "someone asked for 6");
}

#[test]
fn as_many_stay_as_were_busy_at_most() {
    for (peak_busy, expected) in [(0, 4), (2, 4), (3, 3), (4, 2), (6, 0)] {
        let steps = plan(&pool([KindView { peak_busy, ..quiet(60.0, 6) }]));
        assert_eq!(shrunk(&steps).len(), expected, "{peak_busy} were busy");
    }
}

#[test]
fn those_that_have_idled_longest_go_first() {
    let view = kind("k", SETTINGS).with([(1, 3.0), (2, 9.0), (3, 5.0)].map(|(id, idle)| idle_for(idle, free(id))));
    let view = KindView { quiet_for: Some(seconds(60.0)), ..view };
    assert_eq!(shrunk(&plan(&pool([view]))), scaled_down(&[2]));
}

#[test]
fn only_workers_go_that_have_nothing_to_do() {
    let wanted = WorkerView { wanted: true, ..free(1) };
    let drained = WorkerView { drained: true, ..free(2) };
    let successor = WorkerView { replaces: Some(WorkerId(5)), ..free(4) };
    let due = WorkerView { due: Some(DeathCause::RecycledAge), ..free(5) };
    let others = [wanted, drained, busy(3), successor, due, starting(6)];
    let view = KindView { quiet_for: Some(seconds(60.0)), floor: 0, ..kind("k", SETTINGS).with(others) };
    assert_eq!(shrunk(&plan(&pool([view]))), []);
}

#[test]
fn worker_without_a_query_for_its_time_to_live_goes_whatever_the_load() {
    let workers = [(1, 599.0), (2, 600.0), (3, 700.0)].map(|(id, idle)| idle_for(idle, free(id)));
    let view = kind("k", SETTINGS).with(workers).with([busy(4), busy(5), busy(6)]);
    assert_eq!(shrunk(&plan(&pool([view]))), [(3, DeathCause::Idle), (2, DeathCause::Idle)]);
}

#[test]
fn time_to_live_leaves_the_minimum() {
    let view = kind("k", SETTINGS).with((1..=3).map(|id| idle_for(9_999.0, free(id))));
    assert_eq!(shrunk(&plan(&pool([view]))), [(1, DeathCause::Idle)]);
    let never = kind("k", "min = 0\nidle_ttl = \"none\"").with([idle_for(99_999.0, free(1))]);
    assert_eq!(plan(&pool([never])), []);
}

#[test]
fn asked_for_fewer_idle_ones_go_first_then_those_that_start_then_the_busy() {
    let workers = [busy(1), starting(2), idle_for(1.0, free(3)), idle_for(2.0, free(4))];
    for (target, expected) in [(4, vec![]), (3, vec![4]), (2, vec![4, 3]), (1, vec![4, 3, 2]), (0, vec![4, 3, 2, 1])] {
        let view = KindView { shrink_to: Some(target), floor: target, ..kind("k", SETTINGS).with(workers) };
        assert_eq!(retired(&plan(&pool([view]))), scaled_down(&expected), "down to {target}");
    }
}

#[test]
fn asked_for_fewer_those_that_go_already_count() {
    let view = kind("k", SETTINGS).with([stopping(1), free(2), free(3)]);
    let view = KindView { shrink_to: Some(2), ..view };
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn asked_for_fewer_a_worker_and_its_successor_count_as_one() {
    let due = WorkerView { due: Some(DeathCause::RecycledAge), ..free(1) };
    let successor = WorkerView { replaces: Some(WorkerId(1)), ..starting(3) };
    let view = KindView { shrink_to: Some(2), ..kind("k", SETTINGS).with([due, free(2), successor]) };
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn kind_that_is_no_longer_configured_goes_with_its_last_query() {
    let view = kind("k", SETTINGS).with([free(1), busy(2), starting(3)]);
    let removed = |unfinished| KindView { removed: true, floor: 0, unfinished, ..view.clone() };
    assert_eq!(plan(&pool([removed(1)])), []);
    let all = retired(&plan(&pool([removed(0)])));
    assert_eq!(all, [1, 2, 3].map(|id| (id, DeathCause::Reloaded)));
}

#[test]
fn kind_that_is_no_longer_configured_still_serves_what_it_accepted() {
    let view = kind("k", "min = 2\nmax = 4").waiting(1, Duration::ZERO);
    let view = KindView { removed: true, floor: 0, unfinished: 1, ..view };
    assert_eq!(grown(&plan(&pool([view])), 0), 1);
}
