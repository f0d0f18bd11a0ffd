//! The end of the pool: accepted queries finish, then every worker is stopped, all within a known time.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant as StdInstant},
};

use tokio::time::{Instant, Interval, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::{model::DeathCause, worker::StopMode};

use super::{
    Supervisor,
    supervisor::{StopSignals, SupervisorEvent},
};

/// Time kept for what follows the last SIGKILL, but never more than a quarter of the whole stop. A second signal leaves
/// this much.
const KILL_RESERVE: Duration = Duration::from_secs(1);

/// Time for reaping and for writing certificates after SIGKILL. A process that the kernel has not given up by then is
/// left behind.
const REAP_TIMEOUT: Duration = Duration::from_millis(600);

/// Queries are taken for this long after clients were told to go elsewhere, so that calls on their way do not fail. It
/// ends early when no connection is left, and counts against the drain's own time.
const LATE_CALL_WINDOW: Duration = Duration::from_millis(500);

/// Deadlines of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StopSchedule {
    /// Queries that still run are stopped, and all workers with them.
    stop: Instant,
    /// Workers that are left are killed.
    kill: Instant,
    end: Instant,
}

impl StopSchedule {
    /// The stop ends when queries have had `limit` and the slowest worker `ladder`. The reserve for what follows SIGKILL
    /// is taken from the ladder; from the queries only as far as it would leave workers less than half of their ladder.
    fn new(begun: Instant, limit: Duration, ladder: Duration) -> Self {
        let whole = limit + ladder;
        let before_kill = whole.saturating_sub(KILL_RESERVE.min(whole / 4));
        let before_stop = limit.min(before_kill.saturating_sub(ladder / 2));
        Self { stop: begun + before_stop, kill: begun + before_kill, end: begun + whole }
    }
}

/// The outcome of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Deadline for what else the server has to stop.
    pub end: Instant,
    /// Waiting queries that were rejected.
    pub rejected: usize,
    /// Running queries that were cut short.
    pub cut_short: usize,
}

impl DrainReport {
    #[must_use]
    pub fn is_lossless(self) -> bool {
        self.rejected == 0 && self.cut_short == 0
    }
}

impl Supervisor {
    pub(super) async fn drain(mut self, stop: StopSignals, mut tick: Interval) -> DrainReport {
        self.announce_stop(&stop, &mut tick).await;
        let limit = self.context.config().pool.drain_timeout;
        let begun = Instant::now();
        let StopSchedule { stop: until, kill, end } = StopSchedule::new(begun, limit, self.longest_stop());
        self.admit_late_calls(&stop, &mut tick, until.min(begun + LATE_CALL_WINDOW)).await;
        let running = self.context.registry.busy_count();
        self.admission.mark_draining(running);
        info!(running, timeout = ?until - begun, "draining");
        // The end of the last query is no event, so it is noticed at the next tick at the latest.
        while self.context.broker.unfinished_count() > 0 && self.handle_next(&stop, &mut tick, sleep_until(until)).await
        {
        }
        let rejected = self.context.broker.close().await;
        let killed = self.stop_workers(&stop, &mut tick, kill).await;
        let hurried = killed.or_else(|| stop.now.is_cancelled().then(Instant::now));
        let end = hurried.map_or(end, |at| end.min(at + KILL_RESERVE));
        self.admission.mark_shut_down();
        let report = DrainReport { end, rejected, cut_short: self.dispatcher.cut_short.load(Relaxed) };
        if report.is_lossless() {
            info!("stopped; nothing was lost");
        } else {
            warn!(rejected, cut_short = report.cut_short, "stopped before all queries had ended");
        }
        // Dropping the supervisor removes the socket directory. If that takes too long, the next server does it.
        let removal = tokio::task::spawn_blocking(move || drop(self));
        let _ = timeout_at(end, removal).await;
        report
    }

    /// Reports the pool as out of service, and serves on for `drain_pause` so that load balancers notice it.
    async fn announce_stop(&mut self, stop: &StopSignals, tick: &mut Interval) {
        let pause = self.context.config().pool.drain_pause;
        self.admission.mark_leaving();
        if pause.is_zero() {
            return;
        }
        info!(?pause, "out of service; queries are still taken until load balancers have noticed");
        let over = Instant::now() + pause;
        while self.handle_next(stop, tick, sleep_until(over)).await {}
    }

    /// Sends clients away, and still takes the calls that were on their way.
    async fn admit_late_calls(&mut self, stop: &StopSignals, tick: &mut Interval, until: Instant) {
        stop.go_away.cancel();
        while self.handle_next(stop, tick, deadline_or(until, stop.disconnected.cancelled())).await {}
    }

    /// Handles the next event. False when `over` resolves, or the pool is to stop at once.
    async fn handle_next(&mut self, stop: &StopSignals, tick: &mut Interval, over: impl Future<Output = ()>) -> bool {
        let event = tokio::select! {
            biased;
            () = stop.now.cancelled() => return false,
            () = over => return false,
            event = self.next_event(tick) => event,
        };
        self.handle(event).await;
        true
    }

    /// Stops all workers. Those left at `kill`, or at a second signal, are killed; returns the time of that.
    async fn stop_workers(&mut self, stop: &StopSignals, tick: &mut Interval, kill: Instant) -> Option<Instant> {
        self.request_stop_of_all(StopMode::Now);
        let mut killed = None;
        while !self.drivers.is_empty() {
            let ended = tokio::select! {
                () = deadline_or(kill, stop.now.cancelled()), if killed.is_none() => {
                    killed = Some(Instant::now());
                    self.request_stop_of_all(StopMode::Kill);
                    continue;
                }
                _ = tick.tick() => {
                    self.watchdog.record_pass(StdInstant::now());
                    continue;
                }
                ended = timeout_at(killed.unwrap_or(kill) + REAP_TIMEOUT, self.drivers.join_next_with_id()) => ended,
            };
            match ended {
                Ok(Some(ended)) => self.handle(SupervisorEvent::WorkerEnded(ended)).await,
                Ok(None) => break,
                Err(_) => self.abandon_workers().await,
            }
        }
        killed
    }

    /// Drops the tasks of workers that did not end in time, which kills their processes.
    async fn abandon_workers(&mut self) {
        let busy = self.context.registry.busy_count();
        self.dispatcher.cut_short.fetch_add(busy, Relaxed);
        warn!(workers = self.drivers.len(), busy, "workers did not end in time and were abandoned");
        self.drivers.shutdown().await;
    }

    /// Longest time from the first stop request to SIGKILL, over all kinds and workers with older settings.
    fn longest_stop(&self) -> Duration {
        let workers = self.context.registry.snapshot().into_iter().map(|worker| worker.kind.clone());
        let kinds = self.context.kinds.configured().into_iter().map(|kind| kind.config());
        workers.chain(kinds).map(|kind| kind.cancel_grace + kind.term_grace).max().unwrap_or_default()
    }

    fn request_stop_of_all(&self, mode: StopMode) {
        for worker in self.context.registry.snapshot() {
            worker.request_stop(DeathCause::Shutdown, mode);
        }
    }
}

/// Waits for `event`, but not past `deadline`.
async fn deadline_or(deadline: Instant, event: impl Future<Output = ()>) {
    let _ = timeout_at(deadline, event).await;
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
            let schedule = StopSchedule::new(begun, limit, ladder);
            assert_eq!((after(schedule.stop), after(schedule.kill)), (stop, kill), "{limit:?} and {ladder:?}");
            assert_eq!(schedule.end, begun + limit + ladder);
        }
    }
}
