//! The task that owns the workers: starts as many as are needed, replaces those that end, and stops them all.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    model::{Certificate, DeathCause, Exit, RejectReason, WorkerId},
    state::{PoolLifecycle, WorkerState},
    worker::{self, Host, PoolWorker, SocketDir, Spawner, Surroundings},
};

use super::{Inner, Portrait, drain::Drained, kinds::Kind};

/// How often things are looked at that nobody announces: idle workers, waits that are over.
const TICK: Duration = Duration::from_millis(500);

/// Owns every worker's task. Running it is what makes the pool live.
#[derive(Debug)]
pub struct Supervisor {
    pub(super) inner: Arc<Inner>,
    spawner: Spawner,
    sockets: Arc<SocketDir>,
    pub(super) drivers: JoinSet<Arc<Certificate>>,
    ids: HashMap<Id, WorkerId>,
}

/// How the pool is told to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Finish what was accepted, then stop.
    pub drain: CancellationToken,
    /// Stop at once.
    pub now: CancellationToken,
}

pub(super) enum Event {
    Ended(Result<(Id, Arc<Certificate>), JoinError>),
    Nudge,
    Tick,
    Stop,
}

/// What is known of a kind when it is decided how many workers to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    min: usize,
    max: usize,
    /// All that hold resources, those on their way out included.
    present: usize,
    /// Those that serve or are on their way to.
    live: usize,
    starting: usize,
    ready: bool,
    waiting: usize,
    /// The last start failed.
    troubled: bool,
}

impl Supervisor {
    pub(super) fn new(inner: Arc<Inner>, spawner: Spawner, sockets: Arc<SocketDir>) -> Self {
        Self { inner, spawner, sockets, drivers: JoinSet::new(), ids: HashMap::new() }
    }

    /// Keeps the pool at its size until told to stop, then drains it.
    pub async fn run(mut self, stop: StopSignals) -> Drained {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.grow();
        loop {
            let event = tokio::select! {
                () = stop.drain.cancelled() => Event::Stop,
                () = stop.now.cancelled() => Event::Stop,
                event = self.next_event(&mut tick) => event,
            };
            if matches!(event, Event::Stop) {
                return self.drain(stop, tick).await;
            }
            self.handle(event).await;
        }
    }

    pub(super) async fn next_event(&mut self, tick: &mut tokio::time::Interval) -> Event {
        tokio::select! {
            Some(ended) = self.drivers.join_next_with_id() => Event::Ended(ended),
            () = self.inner.nudge.notified() => Event::Nudge,
            () = self.inner.broker.arrival() => Event::Nudge,
            _ = tick.tick() => Event::Tick,
            () = until(self.inner.next_start()) => Event::Tick,
        }
    }

    pub(super) async fn handle(&mut self, event: Event) {
        match event {
            Event::Ended(ended) => self.bury(ended),
            Event::Tick => {
                let now = Instant::now();
                for worker in self.inner.data.snapshot() {
                    worker.mark_idle(now);
                }
                self.inner.forgive();
            }
            Event::Nudge | Event::Stop => {}
        }
        for kind in 0..self.inner.kinds.len() {
            if self.inner.data.has_ready(kind) {
                self.inner.dispatch(kind).await;
            }
        }
        self.fail_fast().await;
        self.settle();
        self.grow();
    }

    /// The queries of a kind whose workers do not start are not left to wait for them.
    async fn fail_fast(&self) {
        for kind in &self.inner.kinds {
            let name = &kind.config.name;
            if let Some(reason) = kind.circuit_reason()
                && self.inner.broker.waiting(name) > 0
            {
                let message = format!("workers of kind {name} do not start; {reason}");
                let rejected = self.inner.broker.reject_waiting(name, RejectReason::CircuitOpen, &message).await;
                warn!(kind = %name, rejected, "queries failed because no worker of their kind starts");
            }
        }
    }

    /// The one place where a worker leaves the registry.
    fn bury(&mut self, ended: Result<(Id, Arc<Certificate>), JoinError>) {
        let (task, certificate) = match ended {
            Ok((task, certificate)) => (task, Some(certificate)),
            Err(panic) => {
                error!(%panic, "a worker's task failed; this is a bug in remuda");
                (panic.id(), None)
            }
        };
        let Some(id) = self.ids.remove(&task) else { return };
        let Some(worker) = self.inner.data.remove(id, |worker| self.inner.kind_of(worker)) else { return };
        let certificate = certificate.unwrap_or_else(|| Arc::new(lost_track(&worker)));
        worker.metrics.worker_ended(certificate.cause);
        self.inner.kinds[self.inner.kind_of(&worker)].ended(&certificate, Instant::now());
        self.inner.remember(Portrait::of(&worker, Some(certificate)));
    }

    /// The pool is ready once every worker it began with is ready or has failed.
    fn settle(&self) {
        let starting =
            |worker: &Arc<PoolWorker>| matches!(worker.state(), WorkerState::Spawning | WorkerState::Loading);
        if self.inner.lifecycle.get() == PoolLifecycle::Initializing && !self.inner.data.snapshot().iter().any(starting)
        {
            let now = Instant::now();
            let _ =
                self.inner.lifecycle.advance(PoolLifecycle::Initializing, PoolLifecycle::Ready, now, "workers started");
            info!(workers = self.inner.data.count(), "pool ready");
        }
    }

    /// Starts the workers that are needed and allowed.
    fn grow(&mut self) {
        for kind in 0..self.inner.kinds.len() {
            for _ in 0..self.workers_to_start(kind) {
                self.start_worker(kind);
            }
        }
    }

    fn workers_to_start(&self, kind: usize) -> usize {
        let blocked = self.inner.kinds[kind].trouble.lock().not_before.is_some_and(|at| at > Instant::now());
        if blocked {
            return 0;
        }
        let load = self.load(kind);
        let draining = self.inner.lifecycle.get() == PoolLifecycle::Draining;
        let load = if draining { Load { min: 0, ..load } } else { load };
        let room = self.inner.config.pool.max_workers.get().saturating_sub(self.inner.data.count());
        decide(load).min(room)
    }

    fn load(&self, kind: usize) -> Load {
        let Kind { config, trouble, .. } = &self.inner.kinds[kind];
        let workers = self.inner.data.all_of_kind(&config.name);
        let count = |wanted: fn(WorkerState) -> bool| workers.iter().filter(|worker| wanted(worker.state())).count();
        Load {
            min: config.min,
            max: config.max.get(),
            present: workers.len(),
            live: count(WorkerState::is_live),
            starting: count(|state| matches!(state, WorkerState::Spawning | WorkerState::Loading)),
            ready: self.inner.data.has_ready(kind),
            waiting: self.inner.broker.waiting(&config.name),
            troubled: trouble.lock().failed_starts > 0,
        }
    }

    fn start_worker(&mut self, kind: usize) {
        let Kind { config, metrics, environment, .. } = &self.inner.kinds[kind];
        let worker = Arc::new(PoolWorker::new(self.inner.next_worker_id(), config.clone(), metrics.clone()));
        let surroundings = Surroundings {
            spawner: self.spawner.clone(),
            sockets: self.sockets.clone(),
            environment: environment.clone(),
        };
        self.inner.data.add(worker.clone());
        let id = worker.id;
        let host: Arc<dyn Host> = self.inner.clone();
        let task = self.drivers.spawn(worker::run(worker, host, surroundings));
        self.ids.insert(task.id(), id);
    }
}

/// The certificate of a worker whose task failed: its process was killed when the task was dropped.
fn lost_track(worker: &PoolWorker) -> Certificate {
    let snapshot = worker.snapshot();
    Certificate {
        worker: worker.id,
        kind: worker.kind.name.clone(),
        pid: snapshot.pid,
        cause: DeathCause::Crash,
        exit: Exit::Unknown,
        detail: Some("was killed because the server lost track of it; this is a bug in remuda".to_owned()),
        query: None,
        uptime: snapshot.uptime,
        queries_processed: 0,
        peak_rss: snapshot.peak_rss,
        stderr_tail: String::new(),
        at: SystemTime::now(),
    }
}

impl Inner {
    /// When the next start is due that was put off after a failure.
    fn next_start(&self) -> Option<Instant> {
        let now = Instant::now();
        self.kinds.iter().filter_map(|kind| kind.trouble.lock().not_before).filter(|at| *at > now).min()
    }

    /// A worker that has stayed in service for a while ends its kind's row of failures, query or no query.
    fn forgive(&self) {
        for worker in self.data.snapshot() {
            let kind = &self.kinds[self.kind_of(&worker)];
            if worker.state().is_healthy() && worker.snapshot().uptime > kind.config.restart_backoff_max {
                kind.recovered(worker.created);
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// How many workers to start: up to `min` always, and as many more as queries wait for and nobody is coming for.
fn decide(load: Load) -> usize {
    let missing = load.min.saturating_sub(load.live);
    let demand = if load.ready { 0 } else { load.waiting.saturating_sub(load.starting) };
    let room = load.max.saturating_sub(load.present);
    let wanted = missing.max(demand).min(room);
    // After a failed start, one worker at a time tries whether the next one succeeds.
    if load.troubled { wanted.min(1usize.saturating_sub(load.starting)) } else { wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Load =
        Load { min: 2, max: 4, present: 2, live: 2, starting: 0, ready: true, waiting: 0, troubled: false };

    #[test]
    fn a_pool_at_its_size_is_left_alone() {
        assert_eq!(decide(QUIET), 0);
    }

    #[test]
    fn a_lost_worker_is_replaced() {
        assert_eq!(decide(Load { present: 1, live: 1, ..QUIET }), 1);
        // One that is still on its way out counts against the maximum only.
        assert_eq!(decide(Load { present: 2, live: 1, ..QUIET }), 1);
        assert_eq!(decide(Load { present: 4, live: 1, ..QUIET }), 0);
    }

    #[test]
    fn waiting_queries_bring_workers_up_to_the_maximum() {
        let busy = Load { ready: false, waiting: 1, ..QUIET };
        assert_eq!(decide(busy), 1);
        assert_eq!(decide(Load { waiting: 50, ..busy }), 2);
        assert_eq!(decide(Load { waiting: 2, present: 3, live: 3, starting: 1, ..busy }), 1);
        assert_eq!(decide(Load { waiting: 1, present: 3, live: 3, starting: 1, ..busy }), 0);
        assert_eq!(decide(Load { waiting: 50, ready: true, ..busy }), 0);
    }

    #[test]
    fn a_kind_with_no_minimum_grows_from_nothing() {
        let empty = Load { min: 0, present: 0, live: 0, ready: false, ..QUIET };
        assert_eq!(decide(empty), 0);
        assert_eq!(decide(Load { waiting: 3, ..empty }), 3);
    }

    #[test]
    fn a_failing_kind_is_probed_by_one_worker_at_a_time() {
        let failing = Load { present: 0, live: 0, ready: false, troubled: true, ..QUIET };
        assert_eq!(decide(failing), 1);
        assert_eq!(decide(Load { present: 1, live: 1, starting: 1, ..failing }), 0);
    }
}
