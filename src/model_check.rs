//! Runs a model, a race of a few threads over real code, under one schedule after another.
//!
//! What is explored is the order in which locks are taken and atomics are used. Atomics are sequentially consistent here
//! whatever their ordering says. Tokio's `Notify` and `watch` are used as they are: no other thread runs inside them.

use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler},
};

/// How many schedules are drawn at random.
const SCHEDULES: usize = 10_000;
/// How many are made up of long stretches of one thread, with so many switches at unlikely moments.
const STRETCHED: usize = 2_000;
const SWITCHES: usize = 3;

/// For models with too many schedules to try them all.
pub(crate) fn sample(model: impl Fn() + Send + Sync + Clone + 'static) {
    run(RandomScheduler::new(SCHEDULES), model.clone());
    run(PctScheduler::new(SWITCHES, STRETCHED), model);
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
