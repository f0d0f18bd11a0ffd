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
    model::{DeathCause, DeathCertificate, Exit, RejectReason, WorkerId},
    state::{PoolLifecycle, WorkerState},
    worker::{self, Host, PoolWorker, SocketDir, SpawnContext, Spawner, WorkerSpec},
};

use super::{
    Inner, Portrait,
    drain::Drained,
    events::{PoolChange, PoolEventBody},
    kinds::{Kind, Settings, key_lane},
    memory::MemoryReservation,
};

/// How often things are looked at that nobody announces: idle workers, waits that are over.
const TICK: Duration = Duration::from_millis(500);

/// The least time between two passes that were only nudged.
const GAP: Duration = Duration::from_millis(5);

/// Owns every worker's task. Running it is what makes the pool live.
#[derive(Debug)]
pub struct Supervisor {
    pub(super) inner: Arc<Inner>,
    spawner: Spawner,
    sockets: Arc<SocketDir>,
    pub(super) drivers: JoinSet<Arc<DeathCertificate>>,
    ids: HashMap<Id, Charge>,
    /// Which worker each new one is to replace.
    pub(super) replaces: HashMap<WorkerId, WorkerId>,
    /// The settings of each kind that its workers were last compared with.
    pub(super) compared: HashMap<usize, Arc<Settings>>,
    /// When the pool was last looked at, and when it is to be looked at again at the latest.
    last_pass: Instant,
    pub(super) next_look: Option<Instant>,
}

/// A worker that the supervisor is responsible for, with what was set aside for it.
#[derive(Debug)]
struct Charge {
    worker: WorkerId,
    _memory: MemoryReservation,
}

/// How the pool is told to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Finish what was accepted, then stop.
    pub drain: CancellationToken,
    /// Stop at once.
    pub now: CancellationToken,
    /// Set by the pool when its drain begins: clients are to send their calls elsewhere.
    pub go_away: CancellationToken,
    /// Set by the server once no connection is left that could bring a query.
    pub disconnected: CancellationToken,
}

pub(super) enum Event {
    Ended(Result<(Id, Arc<DeathCertificate>), JoinError>),
    Nudge,
    /// Queries wait that nobody brought to a worker.
    Arrival,
    Tick,
    Stop,
}

impl Supervisor {
    pub(super) fn new(inner: Arc<Inner>, spawner: Spawner, sockets: Arc<SocketDir>) -> Self {
        Self {
            inner,
            spawner,
            sockets,
            drivers: JoinSet::new(),
            ids: HashMap::new(),
            replaces: HashMap::new(),
            compared: HashMap::new(),
            last_pass: Instant::now(),
            next_look: None,
        }
    }

    /// Keeps the pool at its size until told to stop, then drains it.
    pub async fn run(mut self, stop: StopSignals) -> Drained {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.resize().await;
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
            () = nudged(&self.inner, self.last_pass + GAP) => Event::Nudge,
            () = self.inner.broker.wait_for_arrival() => Event::Arrival,
            _ = tick.tick() => Event::Tick,
            () = until(self.inner.next_start(), self.next_look) => Event::Nudge,
        }
    }

    pub(super) async fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                // Free workers get them at once; whether there are enough of them is looked at like after any nudge.
                self.inner.dispatch_all().await;
                self.inner.nudge.notify_one();
                return;
            }
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
        self.resize().await;
        self.inner.dispatch_all().await;
        self.fail_fast().await;
        self.settle();
        self.last_pass = Instant::now();
        self.inner.watchdog.passed(self.last_pass);
    }

    /// The queries of a kind whose workers do not start are not left to wait for them.
    async fn fail_fast(&self) {
        for kind in self.inner.kinds.all() {
            let name = &kind.name;
            if let Some(reason) = self.inner.fails_fast(&kind)
                && self.inner.broker.waiting_count(name) > 0
            {
                let message = format!("workers of kind {name} do not start; {reason}");
                let rejected = self.inner.broker.reject_waiting(name, RejectReason::CircuitOpen, &message).await;
                warn!(kind = %name, rejected, "queries failed because no worker of their kind starts");
            }
        }
    }

    /// The one place where a worker leaves the registry.
    fn bury(&mut self, ended: Result<(Id, Arc<DeathCertificate>), JoinError>) {
        let (task, certificate) = match ended {
            Ok((task, certificate)) => (task, Some(certificate)),
            Err(panic) => {
                error!(%panic, "a worker's task failed; this is a bug in remuda");
                (panic.id(), None)
            }
        };
        // What was set aside for it is free from here on.
        let Some(Charge { worker: id, .. }) = self.ids.remove(&task) else { return };
        self.replaces.remove(&id);
        self.replaces.retain(|_, old| *old != id);
        let Some(worker) = self.inner.data.get(id) else { return };
        let certificate = certificate.unwrap_or_else(|| Arc::new(lost_track(&worker)));
        // First, so that whoever asks finds it at all times: among the living or among the dead.
        self.inner.remember_death(Portrait::of(&worker, Some(certificate.clone())));
        self.inner.data.remove(id);
        let kind = self.inner.kinds.get(worker.slot);
        kind.whereabouts.forget(&worker);
        self.inner.broker.release_lanes(&kind.name, id, None);
        worker.metrics.record_exit(certificate.cause);
        if certificate.cause.is_failure() {
            kind.scaling.lock().lost_one();
        }
        kind.ended(&certificate, Instant::now());
        self.inner.learn(&kind);
        self.inner.events.emit(Some(&kind.name), || PoolEventBody::WorkerEnded { certificate });
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
            let workers = self.inner.data.count();
            self.inner
                .events
                .emit(None, || PoolEventBody::Pool { change: PoolChange::Ready, reason: format!("{workers} workers") });
            info!(workers, "pool ready");
        }
    }

    /// Starts a worker, for a key or for whatever comes. `None` if there is no memory for it, or another worker has got the
    /// key by now.
    pub(super) fn start_worker(&mut self, kind: &Kind, key: Option<Arc<str>>) -> Option<WorkerId> {
        let settings = kind.settings();
        let limit = self.inner.config().pool.memory_budget;
        let memory = self.inner.memory.reserve(settings.config.memory.unwrap_or(0), limit)?;
        let id = self.inner.next_worker_id();
        let lane = key.as_deref().map(key_lane);
        // From here on the key's queries wait for this worker.
        if lane.as_ref().is_some_and(|lane| !self.inner.broker.hold_lane(&kind.name, lane, id)) {
            return None;
        }
        let worker = Arc::new(PoolWorker::new(WorkerSpec {
            id,
            slot: kind.slot,
            kind: settings.config.clone(),
            key,
            metrics: kind.metrics.clone(),
            observer: kind.events.clone(),
        }));
        let context = SpawnContext {
            spawner: self.spawner.clone(),
            sockets: self.sockets.clone(),
            environment: settings.environment.clone(),
        };
        if let Some(lane) = lane {
            self.inner.remember(kind, &lane, &worker);
        }
        self.inner.data.add(worker.clone());
        let host: Arc<dyn Host> = self.inner.clone();
        let task = self.drivers.spawn(worker::run(worker, host, context));
        self.ids.insert(task.id(), Charge { worker: id, _memory: memory });
        Some(id)
    }
}

/// The certificate of a worker whose task failed: its process was killed when the task was dropped.
fn lost_track(worker: &PoolWorker) -> DeathCertificate {
    let snapshot = worker.snapshot();
    DeathCertificate {
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
    /// Gives ready workers what waits for them.
    pub(super) async fn dispatch_all(&self) {
        for kind in self.kinds.all() {
            if self.data.has_ready(kind.slot) {
                self.dispatch(&kind).await;
            }
            if !self.may_be_held(&kind, self.broker.open_count(&kind.name)) {
                continue;
            }
            for worker in self.data.all_of_kind(kind.slot) {
                if worker.state().can_take_query() && self.broker.has_query_for(&kind.name, worker.id) {
                    self.dispatch_to(&kind, &worker).await;
                }
            }
        }
    }

    /// Why the kind's queries fail at once, if they do: its workers do not start, and it has none.
    pub(super) fn fails_fast(&self, kind: &Kind) -> Option<String> {
        let reason = kind.circuit_reason()?;
        let serves = self.data.all_of_kind(kind.slot).iter().any(|worker| worker.state().is_healthy());
        (!serves).then_some(reason)
    }

    /// When the next start is due that was put off after a failure.
    fn next_start(&self) -> Option<Instant> {
        let now = Instant::now();
        self.kinds.all().iter().filter_map(|kind| kind.trouble.lock().not_before).filter(|at| *at > now).min()
    }

    /// A worker that has stayed in service for a while ends its kind's row of failures, query or no query.
    fn forgive(&self) {
        for worker in self.data.snapshot() {
            let kind = self.kinds.get(worker.slot);
            if worker.state().is_healthy() && worker.created.elapsed() > kind.config().restart_backoff_max {
                kind.recovered(worker.created);
            }
        }
    }
}

/// Waits for a nudge, but not for one that comes right after the last pass: under load there is one for each query, and
/// looking at the whole pool each time would cost more than it brings.
async fn nudged(inner: &Inner, not_before: Instant) {
    tokio::time::sleep_until(not_before.into()).await;
    inner.nudge.notified().await;
}

async fn until(a: Option<Instant>, b: Option<Instant>) {
    match a.into_iter().chain(b).min() {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
