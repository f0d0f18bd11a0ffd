//! The end of the pool: let accepted queries finish, then stop every worker, all within a known time.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant as StdInstant},
};

use tokio::time::{Instant, Interval, timeout_at};
use tracing::{info, warn};

use crate::{
    events::What,
    model::DeathCause,
    state::PoolLifecycle,
    worker::{PoolWorker, StopMode},
};

use super::{
    Inner, Supervisor,
    supervisor::{Event, StopSignals},
};

/// What reaping and writing certificates may take beyond the ladder itself.
/// A process that the kernel holds in a system call is given up after 5 s.
const SLACK: Duration = Duration::from_secs(6);

/// What the stop cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
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
        let _ = self.inner.lifecycle.advance_to(PoolLifecycle::Draining, StdInstant::now(), "stop requested");
        let running = self.inner.data.busy_count();
        info!(running, timeout = ?limit, "draining");
        self.inner.events.emit(None, || What::Pool { state: "draining", reason: format!("{running} queries running") });
        let patience = Instant::now() + limit;
        // A worker's conclusion announces nothing here, so idleness is found on the next tick at the latest.
        while self.inner.has_work() && self.go_on(&stop, &mut tick, patience).await {}
        let rejected = self.inner.broker.close().await;
        self.stop_workers(&stop, &mut tick).await;
        let _ = self.inner.lifecycle.advance_to(PoolLifecycle::ShutDown, StdInstant::now(), "all workers stopped");
        self.inner.events.emit(None, || What::Pool { state: "shut_down", reason: "all workers stopped".to_owned() });
        let drained = Drained { rejected, cut_short: self.inner.cut_short.load(Relaxed) };
        if drained.nothing_was_lost() {
            info!("stopped; nothing was lost");
        } else {
            warn!(rejected, cut_short = drained.cut_short, "stopped before all queries had ended");
        }
        drained
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
        while self.go_on(stop, tick, over).await {}
    }

    /// Does what comes up next. `false` if the time is up, or the pool is to stop at once.
    async fn go_on(&mut self, stop: &StopSignals, tick: &mut Interval, until: Instant) -> bool {
        let event = tokio::select! {
            biased;
            () = stop.now.cancelled() => return false,
            () = tokio::time::sleep_until(until) => return false,
            event = self.next_event(tick) => event,
        };
        self.handle(event).await;
        true
    }

    async fn stop_workers(&mut self, stop: &StopSignals, tick: &mut Interval) {
        let ladder = |worker: Arc<PoolWorker>| worker.kind.cancel_grace + worker.kind.term_grace;
        let longest = self.inner.data.snapshot().into_iter().map(ladder).max().unwrap_or_default();
        let deadline = Instant::now() + longest + SLACK;
        self.inner.request_stop_of_all(StopMode::Now);
        let mut in_haste = false;
        while !self.drivers.is_empty() {
            let ended = tokio::select! {
                () = stop.now.cancelled(), if !in_haste => {
                    in_haste = true;
                    self.inner.request_stop_of_all(StopMode::Kill);
                    continue;
                }
                _ = tick.tick() => {
                    self.inner.watchdog.passed(StdInstant::now());
                    continue;
                }
                ended = timeout_at(deadline, self.drivers.join_next_with_id()) => ended,
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
    }
}

impl Inner {
    /// Whether an accepted query has not ended yet.
    fn has_work(&self) -> bool {
        self.broker.unfinished() > 0
    }

    fn request_stop_of_all(&self, mode: StopMode) {
        for worker in self.data.snapshot() {
            worker.request_stop(DeathCause::Shutdown, mode);
        }
    }
}
