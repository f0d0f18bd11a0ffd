//! Runs a model, a race of a few threads over real code, under one schedule after another.
//!
//! The schedules differ in the order in which locks are taken and atomics are used. Atomics are sequentially consistent whatever
//! their ordering. Tokio's `Notify` and `watch` are used unchanged: no other thread runs inside them.

use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler},
};

/// Number of schedules drawn at random.
const RANDOM_SCHEDULES: usize = 10_000;
/// Number of schedules that run one thread for long and preempt it at a few unlikely moments.
const PREEMPTED_SCHEDULES: usize = 2_000;
const PREEMPTIONS: usize = 3;

/// For models with too many schedules to try them all.
pub(crate) fn sample(model: impl Fn() + Send + Sync + Clone + 'static) {
    run(RandomScheduler::new(RANDOM_SCHEDULES), model.clone());
    run(PctScheduler::new(PREEMPTIONS, PREEMPTED_SCHEDULES), model);
}

/// For models that are small enough to try every schedule.
pub(crate) fn exhaust(model: impl Fn() + Send + Sync + 'static) {
    run(DfsScheduler::new(None, false), model);
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model);
}
