//! The end of the pool: let accepted queries finish, then stop every worker, all within a known time.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant as StdInstant},
};

use tokio::time::{Instant, Interval, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::{model::DeathCause, state::PoolLifecycle, worker::StopMode};

use super::{
    Inner, Supervisor,
    events::{PoolChange, PoolEventBody},
    supervisor::{Event, StopSignals},
};

/// What is kept of a stop's time for what follows the last SIGKILL, but never more than a quarter of it. A second signal leaves
/// this much.
const RESERVE: Duration = Duration::from_secs(1);

/// What reaping and writing certificates may take after SIGKILL, last words included. A process that the kernel does not
/// give up by then is left behind.
const REAP: Duration = Duration::from_millis(600);

/// Queries are taken for this long after clients were told to send their calls elsewhere: a call that was on its way must not
/// fail. It ends early when no connection is left, and counts against the drain's own time.
const LATE_CALLS: Duration = Duration::from_millis(500);

/// When a stop comes to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    /// Queries that still run are stopped, and all workers with them.
    stop: Instant,
    /// What is left of the workers is killed.
    kill: Instant,
    end: Instant,
}

impl Schedule {
    /// All is over when queries have had `limit` and the slowest worker `ladder`. What is kept for what follows SIGKILL is taken
    /// from the ladder, and from the queries if it would leave the workers less than half of that.
    fn new(begun: Instant, limit: Duration, ladder: Duration) -> Self {
        let whole = limit + ladder;
        let before_kill = whole.saturating_sub(RESERVE.min(whole / 4));
        let before_stop = limit.min(before_kill.saturating_sub(ladder / 2));
        Self { stop: begun + before_stop, kill: begun + before_kill, end: begun + whole }
    }
}

/// What the stop cost, and when it is to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Nothing is waited for any longer than this.
    pub end: Instant,
    /// Queries that waited and were rejected.
    pub rejected: usize,
    /// Queries that ran and were cut short.
    pub cut_short: usize,
}

impl Drained {
    #[must_use]
    pub fn nothing_was_lost(self) -> bool {
        self.rejected == 0 && self.cut_short == 0
    }
}

impl Supervisor {
    pub(super) async fn drain(mut self, stop: StopSignals, mut tick: Interval) -> Drained {
        self.leave(&stop, &mut tick).await;
        let limit = self.inner.config().pool.drain_timeout;
        let begun = Instant::now();
        let Schedule { stop: until, kill, end } = Schedule::new(begun, limit, self.inner.longest_ladder());
        self.admit_late_calls(&stop, &mut tick, until.min(begun + LATE_CALLS)).await;
        let _ = self.inner.lifecycle.advance_to(PoolLifecycle::Draining, StdInstant::now(), "stop requested");
        let running = self.inner.data.busy_count();
        self.inner.events.emit(None, || PoolEventBody::Pool {
            change: PoolChange::Draining,
            reason: format!("{running} queries running"),
        });
        info!(running, timeout = ?until - begun, "draining");
        // A worker's conclusion announces nothing here, so idleness is found on the next tick at the latest.
        while self.inner.has_work() && self.go_on(&stop, &mut tick, sleep_until(until)).await {}
        let rejected = self.inner.broker.close().await;
        let killed = self.stop_workers(&stop, &mut tick, kill).await;
        let hurried = killed.or_else(|| stop.now.is_cancelled().then(Instant::now));
        let end = hurried.map_or(end, |at| end.min(at + RESERVE));
        let _ = self.inner.lifecycle.advance_to(PoolLifecycle::ShutDown, StdInstant::now(), "all workers stopped");
        self.inner.events.emit(None, || PoolEventBody::Pool {
            change: PoolChange::ShutDown,
            reason: "all workers stopped".to_owned(),
        });
        let drained = Drained { end, rejected, cut_short: self.inner.cut_short.load(Relaxed) };
        if drained.nothing_was_lost() {
            info!("stopped; nothing was lost");
        } else {
            warn!(rejected, cut_short = drained.cut_short, "stopped before all queries had ended");
        }
        self.clear_up(end).await;
        drained
    }

    /// Removes the directory with what workers have left in it. What takes longer is left to the next server.
    async fn clear_up(self, end: Instant) {
        let removal = tokio::task::spawn_blocking(move || drop(self));
        let _ = timeout_at(end, removal).await;
    }

    /// Says that queries should go elsewhere, and serves on until those who send them have had time to hear of it.
    async fn leave(&mut self, stop: &StopSignals, tick: &mut Interval) {
        let pause = self.inner.config().pool.drain_pause;
        self.inner.leaving.store(true, Relaxed);
        if pause.is_zero() {
            return;
        }
        info!(?pause, "not serving any more; queries are still taken until load balancers have heard of it");
        let over = Instant::now() + pause;
        while self.go_on(stop, tick, sleep_until(over)).await {}
    }

    /// Sends clients away, and still takes the calls that they sent before they heard of it.
    async fn admit_late_calls(&mut self, stop: &StopSignals, tick: &mut Interval, until: Instant) {
        stop.go_away.cancel();
        let all_gone = async || {
            let _ = timeout_at(until, stop.disconnected.cancelled()).await;
        };
        while self.go_on(stop, tick, all_gone()).await {}
    }

    /// Handles the next event. False when `over` resolves, or the pool is to stop at once.
    async fn go_on(&mut self, stop: &StopSignals, tick: &mut Interval, over: impl Future<Output = ()>) -> bool {
        let event = tokio::select! {
            biased;
            () = stop.now.cancelled() => return false,
            () = over => return false,
            event = self.next_event(tick) => event,
        };
        self.handle(event).await;
        true
    }

    /// Stops them all by the ladder. What is left at `kill`, or at a second signal, is killed; gives the time of that.
    async fn stop_workers(&mut self, stop: &StopSignals, tick: &mut Interval, kill: Instant) -> Option<Instant> {
        self.inner.request_stop_of_all(StopMode::Now);
        let mut killed = None;
        while !self.drivers.is_empty() {
            let ended = tokio::select! {
                () = in_haste(stop, kill), if killed.is_none() => {
                    killed = Some(Instant::now());
                    self.inner.request_stop_of_all(StopMode::Kill);
                    continue;
                }
                _ = tick.tick() => {
                    self.inner.watchdog.passed(StdInstant::now());
                    continue;
                }
                ended = timeout_at(killed.unwrap_or(kill) + REAP, self.drivers.join_next_with_id()) => ended,
            };
            match ended {
                Ok(Some(ended)) => self.handle(Event::Ended(ended)).await,
                Ok(None) => break,
                Err(_) => {
                    // Their processes are killed when the tasks are dropped.
                    let busy = self.inner.data.busy_count();
                    self.inner.cut_short.fetch_add(busy, Relaxed);
                    warn!(workers = self.drivers.len(), busy, "workers did not end in time and were abandoned");
                    self.drivers.shutdown().await;
                }
            }
        }
        killed
    }
}

/// Resolves when there is no more time for politeness.
async fn in_haste(stop: &StopSignals, kill: Instant) {
    let _ = timeout_at(kill, stop.now.cancelled()).await;
}

impl Inner {
    /// The most that any worker may take from the first word to SIGKILL, one that has the settings of before a reload included.
    fn longest_ladder(&self) -> Duration {
        let workers = self.data.snapshot().into_iter().map(|worker| worker.kind.clone());
        let kinds = self.kinds.configured().into_iter().map(|kind| kind.config());
        workers.chain(kinds).map(|kind| kind.cancel_grace + kind.term_grace).max().unwrap_or_default()
    }

    /// Whether an accepted query has not ended yet.
    fn has_work(&self) -> bool {
        self.broker.unfinished_count() > 0
    }

    fn request_stop_of_all(&self, mode: StopMode) {
        for worker in self.data.snapshot() {
            worker.request_stop(DeathCause::Shutdown, mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_half_of_their_ladder_at_least_and_a_stop_ends_when_it_was_said() {
        let begun = Instant::now();
        let after = |at: Instant| (at - begun).as_millis();
        for (limit, ladder, stop, kill) in [
            (30_000, 7_000, 30_000, 36_000),
            (30_000, 1_200, 29_600, 30_200),
            (30_000, 300, 29_150, 29_300),
            (30_000, 0, 29_000, 29_000),
            (200, 200, 200, 300),
            (0, 7_000, 0, 6_000),
            (0, 0, 0, 0),
        ] {
            let [limit, ladder] = [limit, ladder].map(Duration::from_millis);
            let schedule = Schedule::new(begun, limit, ladder);
            assert_eq!((after(schedule.stop), after(schedule.kill)), (stop, kill), "{limit:?} and {ladder:?}");
            assert_eq!(schedule.end, begun + limit + ladder);
        }
    }
}
