//! The task that owns the workers: starts as many as are needed, replaces those that end, and stops them all.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::{
    model::{DeathCause, DeathCertificate, Exit, RejectReason, WorkerId},
    state::{PoolLifecycle, WorkerState},
    worker::{self, PoolWorker, RuntimeDir, SpawnContext, Spawner, WorkerSpec},
};

use super::{
    PoolParts,
    admission::Admission,
    affinity::key_lane,
    context::PoolContext,
    dispatcher::Dispatcher,
    drain::DrainReport,
    events::PoolEventBody,
    kinds::PoolKind,
    memory::{MemoryBudget, MemoryReservation},
    sizing::Sizing,
    watchdog::Watchdog,
};

/// Interval of the passes that look for what no event announces, such as idle workers.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// Shortest time between two passes that were only asked for by a wake-up. Under load every query without a ready worker
/// asks for one, and a pass looks at all workers.
const WAKE_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Owns every worker's task. The pool has workers only while it runs.
#[derive(Debug)]
pub struct Supervisor {
    pub(super) context: Arc<PoolContext>,
    pub(super) admission: Arc<Admission>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) sizing: Sizing,
    pub(super) watchdog: Arc<Watchdog>,
    memory: Arc<MemoryBudget>,
    spawner: Spawner,
    runtime_dir: Arc<RuntimeDir>,
    pub(super) drivers: JoinSet<Arc<DeathCertificate>>,
    entries: HashMap<Id, WorkerEntry>,
    last_pass: Instant,
}

/// The supervisor's record of a worker, with the memory reserved for it.
#[derive(Debug)]
struct WorkerEntry {
    worker: WorkerId,
    _memory: MemoryReservation,
}

/// Signals between the server and the pool when they stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Finish the accepted queries, then stop.
    pub drain: CancellationToken,
    /// Stop at once.
    pub now: CancellationToken,
    /// Set by the pool when its drain begins: clients are to send their calls elsewhere.
    pub go_away: CancellationToken,
    /// Set by the server once no connection is left that could bring a query.
    pub disconnected: CancellationToken,
}

pub(super) enum SupervisorEvent {
    WorkerEnded(Result<(Id, Arc<DeathCertificate>), JoinError>),
    Wake,
    /// Queries wait that were not dispatched when they arrived, such as retries.
    QueriesWaiting,
    Tick,
}

impl Supervisor {
    pub(super) fn new(parts: &PoolParts, spawner: Spawner, runtime_dir: Arc<RuntimeDir>) -> Self {
        let PoolParts { context, admission, dispatcher, memory, watchdog, .. } = parts;
        Self {
            sizing: Sizing::new(context.clone(), admission.clone()),
            context: context.clone(),
            admission: admission.clone(),
            dispatcher: dispatcher.clone(),
            watchdog: watchdog.clone(),
            memory: memory.clone(),
            spawner,
            runtime_dir,
            drivers: JoinSet::new(),
            entries: HashMap::new(),
            last_pass: Instant::now(),
        }
    }

    /// Keeps the pool at its size until a stop is signalled, then drains it.
    pub async fn run(mut self, stop: StopSignals) -> DrainReport {
        let mut tick = tokio::time::interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.handle(SupervisorEvent::Wake).await;
        loop {
            let event = tokio::select! {
                () = stop.drain.cancelled() => break,
                () = stop.now.cancelled() => break,
                event = self.next_event(&mut tick) => event,
            };
            self.handle(event).await;
        }
        self.drain(stop, tick).await
    }

    pub(super) async fn next_event(&mut self, tick: &mut Interval) -> SupervisorEvent {
        let next_look = self.next_start().into_iter().chain(self.sizing.next_look).min();
        tokio::select! {
            Some(ended) = self.drivers.join_next_with_id() => SupervisorEvent::WorkerEnded(ended),
            () = wait_for_wake(&self.context, self.last_pass + WAKE_INTERVAL_MIN) => SupervisorEvent::Wake,
            () = self.context.broker.wait_for_arrival() => SupervisorEvent::QueriesWaiting,
            _ = tick.tick() => SupervisorEvent::Tick,
            () = wait_until(next_look) => SupervisorEvent::Wake,
        }
    }

    /// Handles one event: workers are started and stopped synchronously, in `on_event`; then queries are dispatched.
    pub(super) async fn handle(&mut self, event: SupervisorEvent) {
        let is_full_pass = self.on_event(event);
        self.dispatcher.dispatch_all().await;
        if is_full_pass {
            self.reject_unservable().await;
            self.mark_pool_ready();
            self.last_pass = Instant::now();
            self.watchdog.record_pass(self.last_pass);
        }
    }

    /// Changes the pool in answer to an event. False if queries are to be dispatched and nothing else.
    fn on_event(&mut self, event: SupervisorEvent) -> bool {
        match event {
            SupervisorEvent::QueriesWaiting => {
                // Ready workers get them at once; whether more workers are needed is for the next pass.
                self.context.wake_supervisor();
                return false;
            }
            SupervisorEvent::WorkerEnded(ended) => self.remove_worker(ended),
            SupervisorEvent::Tick => self.on_tick(Instant::now()),
            SupervisorEvent::Wake => {}
        }
        self.resize();
        true
    }

    /// Marks idle workers, and closes the circuit of kinds whose workers have been in service for a while.
    fn on_tick(&self, now: Instant) {
        for worker in self.context.registry.snapshot() {
            worker.mark_idle(now);
            let kind = self.context.kinds.get(worker.slot);
            if worker.state().is_healthy() && worker.created.elapsed() > kind.config().restart_backoff_max {
                kind.record_recovery(worker.created);
            }
        }
    }

    /// The time of the next start that was delayed after a failure.
    fn next_start(&self) -> Option<Instant> {
        let now = Instant::now();
        let kinds = self.context.kinds.all();
        kinds.iter().filter_map(|kind| kind.start_failures.lock().not_before).filter(|at| *at > now).min()
    }

    /// Rejects the waiting queries of kinds whose workers do not start.
    async fn reject_unservable(&self) {
        let PoolContext { broker, kinds, .. } = &*self.context;
        for kind in kinds.all() {
            let name = &kind.name;
            if let Some(reason) = self.context.fail_fast_reason(&kind)
                && broker.waiting_count(name) > 0
            {
                let message = format!("workers of kind {name} do not start; {reason}");
                let rejected = broker.reject_waiting(name, RejectReason::CircuitOpen, &message).await;
                warn!(kind = %name, rejected, "queries failed because no worker of their kind starts");
            }
        }
    }

    /// Removes a worker whose task has ended. The only place where a worker leaves the registry.
    fn remove_worker(&mut self, ended: Result<(Id, Arc<DeathCertificate>), JoinError>) {
        let (task, certificate) = match ended {
            Ok((task, certificate)) => (task, Some(certificate)),
            Err(panic) => {
                error!(%panic, "a worker's task failed; this is a bug in remuda");
                (panic.id(), None)
            }
        };
        // Dropping the entry gives its memory back.
        let Some(WorkerEntry { worker: id, .. }) = self.entries.remove(&task) else { return };
        self.sizing.remove_worker(id);
        let PoolContext { broker, registry, kinds, events, .. } = &*self.context;
        let Some(worker) = registry.get(id) else { return };
        let certificate = certificate.unwrap_or_else(|| Arc::new(synthetic_certificate(&worker)));
        registry.remove(&worker, certificate.clone());
        let kind = kinds.get(worker.slot);
        kind.ready.remove(id);
        kind.affinity.remove_worker(&worker);
        broker.release_lanes(&kind.name, id, None);
        worker.metrics.record_exit(certificate.cause);
        if certificate.cause.is_failure() {
            kind.scaling.lock().record_failure();
        }
        kind.record_worker_end(&certificate, Instant::now());
        self.context.update_capabilities(&kind);
        events.emit(Some(&kind.name), || PoolEventBody::WorkerEnded { certificate });
    }

    /// Marks the pool as ready once every worker that it began with is ready or has failed.
    fn mark_pool_ready(&self) {
        let is_starting =
            |worker: &Arc<PoolWorker>| matches!(worker.state(), WorkerState::Spawning | WorkerState::Loading);
        let initializing = self.admission.lifecycle() == PoolLifecycle::Initializing;
        if initializing && !self.context.registry.snapshot().iter().any(is_starting) {
            self.admission.mark_ready(self.context.registry.count());
        }
    }

    /// Starts a worker, bound to a key if one is given. `None` if there is no memory for it, or another worker holds the
    /// key by now.
    pub(super) fn start_worker(&mut self, kind: &PoolKind, key: Option<Arc<str>>) -> Option<WorkerId> {
        let settings = kind.settings();
        let limit = self.context.config().pool.memory_budget;
        let memory = self.memory.reserve(settings.config.memory.unwrap_or(0), limit)?;
        let id = self.context.registry.next_id();
        let lane = key.as_deref().map(key_lane);
        // From here on the key's queries wait for this worker.
        if lane.as_ref().is_some_and(|lane| !self.context.broker.hold_lane(&kind.name, lane, id)) {
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
        let spawn_context = SpawnContext {
            spawner: self.spawner.clone(),
            runtime_dir: self.runtime_dir.clone(),
            environment: settings.environment.clone(),
        };
        if let Some(lane) = lane {
            self.dispatcher.remember_lane(kind, &lane, &worker);
        }
        self.context.registry.add(worker.clone());
        let task = self.drivers.spawn(worker::run(worker, self.dispatcher.clone(), spawn_context));
        self.entries.insert(task.id(), WorkerEntry { worker: id, _memory: memory });
        Some(id)
    }
}

/// The certificate of a worker whose task panicked: dropping the task has killed its process.
fn synthetic_certificate(worker: &PoolWorker) -> DeathCertificate {
    let snapshot = worker.snapshot();
    DeathCertificate {
        worker: worker.id,
        kind: worker.kind.name.clone(),
        pid: snapshot.pid,
        cause: DeathCause::Crash,
        exit: Exit::Unknown,
        detail: Some("was killed because the server lost track of it; this is a bug in remuda".to_owned()),
        query: None,
        uptime: snapshot.stats.age,
        queries_processed: 0,
        peak_rss: snapshot.peak_rss,
        stderr_tail: String::new(),
        at: SystemTime::now(),
    }
}

/// Waits for a wake-up, but not before `not_before`.
async fn wait_for_wake(context: &PoolContext, not_before: Instant) {
    tokio::time::sleep_until(not_before.into()).await;
    context.supervisor_wake.notified().await;
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
