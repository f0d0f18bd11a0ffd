//! Replacement of workers that are due: the new one starts first, one at a time.

use super::*;

const AGE: Option<DeathCause> = Some(DeathCause::RecycledAge);

fn due(worker: WorkerView) -> WorkerView {
    WorkerView { due: AGE, ..worker }
}

fn in_place_of(old: u64, worker: WorkerView) -> WorkerView {
    WorkerView { replaces: Some(WorkerId(old)), ..worker }
}

fn two(workers: impl IntoIterator<Item = WorkerView>) -> KindView {
    kind("k", "min = 2\nmax = 2\nmax_age = \"1h\"").with(workers)
}

#[test]
fn worker_that_is_due_gets_a_successor_even_at_the_kinds_maximum() {
    for worker in [due(free(1)), due(busy(1)), due(worker(1, WorkerState::Idle))] {
        let steps = plan(&pool([two([worker, free(2)])]));
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!(replaced(&steps), [1]);
    }
}

#[test]
fn old_worker_goes_when_the_new_one_is_ready_and_not_before() {
    for (state, gone) in [
        (WorkerState::Spawning, false),
        (WorkerState::Loading, false),
        (WorkerState::Ready, true),
        (WorkerState::Processing, true),
    ] {
        let steps = plan(&pool([two([due(free(1)), free(2), in_place_of(1, worker(3, state))])]));
        let expected = if gone { vec![(1, DeathCause::RecycledAge)] } else { vec![] };
        assert_eq!(retired(&steps), expected, "{state}");
        assert_eq!(steps.len(), expected.len(), "and nothing else happens: {steps:?}");
    }
}

#[test]
fn successor_that_was_stopped_or_died_is_replaced_by_another() {
    let failed = in_place_of(1, worker(3, WorkerState::Failed));
    assert_eq!(replaced(&plan(&pool([two([due(free(1)), free(2), failed])]))), [1]);
}

#[test]
fn workers_are_replaced_one_at_a_time() {
    assert_eq!(replaced(&plan(&pool([two([due(free(1)), due(free(2))])]))), [1]);
    let one_starts = two([due(free(1)), due(free(2)), in_place_of(1, starting(3))]);
    assert_eq!(plan(&pool([one_starts])), []);
    let one_goes = two([due(stopping(1)), due(free(2)), in_place_of(1, free(3))]);
    assert_eq!(plan(&pool([one_goes])), []);
    let one_is_gone = two([due(free(2)), free(3)]);
    assert_eq!(replaced(&plan(&pool([one_is_gone]))), [2]);
}

#[test]
fn kinds_do_not_wait_for_each_other() {
    let view = pool([two([due(free(1)), free(2)]), two([due(free(3)), free(4)])]);
    assert_eq!(replaced(&plan(&view)), [1, 3]);
}

#[test]
fn without_room_for_two_the_old_one_goes_first() {
    let view = PoolView { max_workers: 2, ..pool([two([due(busy(1)), due(free(2))])]) };
    let steps = plan(&view);
    assert_eq!((retired(&steps), steps.len()), (vec![(1, DeathCause::RecycledAge)], 1), "and only one of them");
    let memory = kind("k", "min = 1\nmax = 2\nmemory = \"100MiB\"").with([due(free(1))]);
    let view = PoolView { memory_budget: Some(199 * MIB), ..pool([memory]) };
    assert_eq!(retired(&plan(&view)), [(1, DeathCause::RecycledAge)]);
}

#[test]
fn room_that_is_coming_is_waited_for() {
    let other = kind("other", "min = 0").with([stopping(9)]);
    let view = PoolView { max_workers: 3, ..pool([two([due(free(1)), free(2)]), other]) };
    assert_eq!(plan(&view), []);
}

#[test]
fn worker_that_is_bound_to_a_key_goes_without_a_successor() {
    let keyed = kind("k", "keyed = true\nmin = 0\nmax = 4").with([bound(due(busy(1))), bound(free(2))]);
    let steps = plan(&pool([keyed]));
    assert_eq!((retired(&steps), replaced(&steps)), (vec![(1, DeathCause::RecycledAge)], vec![]));
}

#[test]
fn nothing_is_replaced_while_starts_are_put_off() {
    let view = KindView { starts: StartHealth::Delayed, ..two([due(free(1)), free(2)]) };
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn worker_that_still_starts_is_given_up_only_if_its_configuration_changed() {
    let starting = |cause| WorkerView { due: Some(cause), ..starting(1) };
    assert_eq!(plan(&pool([two([starting(DeathCause::RecycledAge), free(2)])])), []);
    let steps = plan(&pool([two([starting(DeathCause::Reloaded), free(2)])]));
    assert_eq!(retired(&steps), [(1, DeathCause::Reloaded)]);
}

#[test]
fn stopping_worker_is_not_replaced() {
    let view = kind("k", "min = 1\nmax = 2").with([due(stopping(1)), free(2)]);
    assert_eq!(plan(&pool([view])), []);
}

#[test]
fn successor_counts_neither_for_the_minimum_nor_as_surplus() {
    let quiet = |workers: Vec<WorkerView>| KindView { quiet_for: Some(seconds(3_600.0)), ..two(workers) };
    let pair = vec![due(free(1)), free(2), in_place_of(1, starting(3))];
    assert_eq!(plan(&pool([quiet(pair)])), []);
    let handed_over = vec![due(stopping(1)), free(2), in_place_of(1, free(3))];
    assert_eq!(plan(&pool([quiet(handed_over)])), []);
}

fn used_once(max: usize, workers: impl IntoIterator<Item = WorkerView>) -> KindView {
    let used = |worker: WorkerView| {
        let due = (worker.state == WorkerState::Processing).then_some(DeathCause::RecycledQueries);
        WorkerView { due, ..worker }
    };
    kind("k", &format!("min = 1\nmax = {max}\nmax_queries = 1")).with(workers.into_iter().map(used))
}

#[test]
fn workers_for_one_query_each_are_replaced_as_they_are_used() {
    assert_eq!(replaced(&plan(&pool([used_once(8, [busy(1), busy(2), busy(3)])]))), [1, 2, 3]);
}

#[test]
fn workers_for_one_query_each_never_exceed_the_maximum_by_more_than_one() {
    assert_eq!(replaced(&plan(&pool([used_once(3, [busy(1), busy(2), busy(3)])]))), [1]);
    // The successor of a query that lasts has a query that lasts, too.
    let long = used_once(1, [stopping(1), in_place_of(1, busy(2))]);
    assert_eq!(plan(&pool([long])), []);
}

#[test]
fn in_the_same_pass_nothing_else_takes_the_kind_below_its_minimum() {
    let due_and_idle = kind("other", "min = 1\nmax = 4").with([due(free(1)), idle_for(9.0, free(2))]);
    let needy = kind("needy", "min = 0").waiting(1, seconds(0.0));
    let needier = kind("needier", "min = 0").waiting(1, seconds(0.0));
    let view = PoolView { max_workers: 2, ..pool([due_and_idle, needy, needier]) };
    let steps = plan(&view);
    assert_eq!((retired(&steps), evicted(&steps)), (vec![(1, DeathCause::RecycledAge)], vec![]));
}
