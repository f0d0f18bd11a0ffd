//! Starts the real server on ports of its own in a temporary directory, and waits for things with a deadline.

mod authority;
mod client;
mod command;
mod load;
mod log;
mod processes;
#[allow(dead_code, reason = "the hostile tests use the rest")]
pub(crate) mod raw;
mod seed;
mod server;
mod serving;
mod users;
mod watcher;
mod workers;

use std::{
    future::Future,
    time::{Duration, Instant},
};

pub(crate) use authority::{Authority, Identity};
pub(crate) use client::{Client, Ended, TestEvent, query, was_cut_off};
pub(crate) use command::{finish_within, output_of, run};
pub(crate) use load::Load;
pub(crate) use log::end_of;
pub(crate) use processes::{alive, descendants, group_of, guardian_of, is_stopped, send_signal, zombies_of};
pub(crate) use seed::Seed;
pub(crate) use server::{SHARED_SECRETS, Server, fake_kind, remuda, skip};
pub(crate) use serving::{tells_worker, waits_for};
pub(crate) use users::{DAEMON, NOBODY, is_root, public_copy, public_dir};
pub(crate) use watcher::{Watcher, reason_of, worker_of};
pub(crate) use workers::Gate;

/// Time after which a test fails that waits for something. Nothing takes that long, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until `condition` returns something, polling every few milliseconds.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    eventually_within(DEADLINE, what, condition)
}

/// The same with a deadline of its own, for promises of a time.
#[track_caller]
pub(crate) fn eventually_within<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same for asynchronous conditions.
pub(crate) async fn eventually_async<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
