//! Looks at the whole pool, has it decided what its size should be, and does what was decided.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{debug, info};

use crate::{
    broker::Demand,
    config::Config,
    model::{DeathCause, WorkerId},
    state::PoolLifecycle,
    worker::{PoolWorker, StopMode},
};

use super::{
    Inner, Supervisor,
    events::PoolEventBody,
    kinds::{Kind, key_of},
    plan::{DemandView, KindView, PoolView, Starts, Step, WorkerView, plan},
};

/// How many keys without a worker are looked at in one pass.
const LANES: usize = 32;

/// A kind that has got workers, and why.
#[must_use]
pub(super) struct Growth {
    kind: Arc<Kind>,
    from: usize,
    to: usize,
    reason: String,
}

impl Supervisor {
    /// Brings the pool to the size it should have, as far as it can be done now.
    pub(super) async fn resize(&mut self) {
        let grown = self.take_steps();
        if grown.is_empty() {
            return;
        }
        // New workers are on their way before they are talked about.
        tokio::task::yield_now().await;
        for Growth { kind, from, to, reason } in grown {
            self.inner.scaled(&kind, from, to, reason);
        }
    }

    fn take_steps(&mut self) -> Vec<Growth> {
        let now = Instant::now();
        self.find_outdated();
        let view = self.view(now);
        let steps = plan(&view);
        self.withdraw_requests(&view, &steps);
        let grown = steps.into_iter().filter_map(|step| self.take(step, now)).collect();
        self.next_look = view.kinds.iter().filter_map(|kind| next_look(&view, kind)).min().map(|wait| now + wait);
        grown
    }

    /// Marks the workers that were started with other settings than their kind has now. Only after a change: the
    /// comparison is costly, and whatever is started later has the new settings.
    fn find_outdated(&mut self) {
        for kind in self.inner.kinds.all() {
            let settings = kind.settings();
            if self.compared.get(&kind.slot).is_some_and(|last| Arc::ptr_eq(last, &settings)) {
                continue;
            }
            for worker in self.inner.data.all_of_kind(kind.slot) {
                if worker.set_outdated(worker.kind.must_roll(&settings.config)) {
                    // It stays, so nobody is to take its place.
                    self.replaces.retain(|_, old| *old != worker.id);
                }
            }
            self.compared.insert(kind.slot, settings);
        }
    }

    fn view(&self, now: Instant) -> PoolView {
        let config = self.inner.config();
        let kinds = self.inner.kinds.all();
        let mut workers: Vec<Vec<Arc<PoolWorker>>> = kinds.iter().map(|_| Vec::new()).collect();
        for worker in self.inner.data.snapshot() {
            workers[worker.slot].push(worker);
        }
        let views = kinds.iter().zip(workers).map(|(kind, workers)| self.kind_view(kind, &workers, now));
        PoolView {
            max_workers: config.pool.max_workers.get(),
            max_starting: config.pool.max_starting.get(),
            memory_budget: config.pool.memory_budget,
            eviction: config.pool.eviction,
            kinds: views.collect(),
        }
    }

    /// Who was asked to give way, and need not any more, is told so.
    fn withdraw_requests(&self, view: &PoolView, steps: &[Step]) {
        for kind in &view.kinds {
            let asked = |step: &Step| matches!(step, Step::GiveWay { kind: asked, .. } if *asked == kind.kind);
            if !steps.iter().any(asked) {
                self.inner.kinds.get(kind.kind).asked_to_give_way();
            }
        }
    }

    fn kind_view(&self, kind: &Arc<Kind>, workers: &[Arc<PoolWorker>], now: Instant) -> KindView {
        let inner = &self.inner;
        let demand = inner.broker.demand(&kind.name, LANES);
        let stopping = inner.lifecycle.get() == PoolLifecycle::Draining;
        let removed = kind.is_removed();
        let views: Vec<WorkerView> = workers
            .iter()
            .map(|worker| {
                let wanted = demand.waiting > demand.open && inner.broker.has_query_for(&kind.name, worker.id);
                WorkerView { wanted, replaces: self.replaces.get(&worker.id).copied(), ..worker_view(worker, now) }
            })
            .collect();
        let busy = workers.iter().filter(|worker| worker.is_busy()).count();
        let mut scaling = kind.scaling.lock();
        let config = kind.config();
        scaling.observe(demand.waiting, busy, now);
        let trouble = kind.trouble.lock();
        let mut view = KindView {
            kind: kind.slot,
            short_for: Duration::ZERO,
            floor: if stopping || removed { 0 } else { scaling.floor(config.min) },
            shrink_to: scaling.shrink_to,
            removed,
            unfinished: if removed { inner.broker.unfinished_count_of(&kind.name) } else { 0 },
            starts: match trouble.not_before {
                Some(at) if at > now => Starts::PutOff,
                _ if trouble.failed_starts > 0 => Starts::Troubled,
                _ => Starts::Fine,
            },
            demand: demand_view(&demand, now),
            ready: inner.data.has_ready(kind.slot),
            since_growth: scaling.since_growth(now),
            quiet_for: scaling.quiet_for(now).filter(|_| !stopping),
            peak_busy: scaling.peak_busy(),
            workers: views,
            config,
        };
        view.short_for = scaling.short_for(view.live() < view.floor, now);
        // Asked for once, done once: what the load asks for later is another matter.
        scaling.shrink_to = view.shrink_to.filter(|target| view.live() > *target);
        view
    }

    fn take(&mut self, step: Step, now: Instant) -> Option<Growth> {
        match step {
            Step::Grow { kind, keys, reason } => {
                let kind = self.inner.kinds.get(kind);
                let from = self.inner.live(&kind);
                let started = keys.into_iter().filter_map(|key| self.start_worker(&kind, key)).count();
                let replaced = kind.scaling.lock().grew(started, now);
                kind.metrics.record_restarts(replaced);
                return Some(Growth { kind, from, to: from + started, reason });
            }
            Step::Replace { kind, worker, reason } => {
                let kind = self.inner.kinds.get(kind);
                if let Some(new) = self.start_worker(&kind, None) {
                    info!(worker = worker.0, replacement = new.0, kind = %kind.name, reason, "replacing a worker");
                    self.replaces.insert(new, worker);
                }
            }
            Step::Retire { kind, workers, cause, reason } => {
                let kind = self.inner.kinds.get(kind);
                let from = self.inner.live(&kind);
                for worker in workers.iter().filter_map(|id| self.inner.data.get(*id)) {
                    info!(worker = worker.id.0, kind = %kind.name, cause = cause.name(), reason, "retiring a worker");
                    worker.request_stop(cause, StopMode::WhenDone);
                }
                if cause == DeathCause::ScaledDown {
                    self.inner.scaled(&kind, from, from.saturating_sub(workers.len()), reason);
                }
            }
            Step::Shrink { kind, workers, cause, reason } => self.shrink(kind, &workers, cause, reason, now),
            Step::Evict { kind, worker, reason } => {
                let kind = self.inner.kinds.get(kind);
                if let Some(worker) = self.inner.data.get(worker)
                    && worker.stop_if_spare(DeathCause::Evicted)
                {
                    self.inner.evicted(&kind, &worker, reason);
                }
            }
            Step::GiveWay { kind, reason } => self.inner.kinds.get(kind).ask_to_give_way(reason),
        }
        None
    }

    fn shrink(&self, kind: usize, workers: &[WorkerId], cause: DeathCause, reason: String, now: Instant) {
        let kind = self.inner.kinds.get(kind);
        let from = self.inner.live(&kind);
        let free = workers.iter().filter_map(|id| self.inner.data.get(*id));
        let stopped = free.filter(|worker| worker.stop_if_spare(cause)).count();
        kind.scaling.lock().shrank(now);
        if stopped > 0 {
            self.inner.scaled(&kind, from, from.saturating_sub(stopped), reason);
        }
    }
}

impl Inner {
    /// Workers of a kind that serve or are on their way to.
    pub(super) fn live(&self, kind: &Kind) -> usize {
        self.data.all_of_kind(kind.slot).iter().filter(|worker| worker.state().is_live()).count()
    }

    /// Tells of a decision about a kind's size.
    fn scaled(&self, kind: &Kind, from: usize, to: usize, reason: String) {
        if from == to {
            debug!(kind = %kind.name, reason, "no worker could be started");
            return;
        }
        info!(kind = %kind.name, from, to, reason, "scaling");
        kind.metrics.record_scaling(from, to);
        self.events.emit(Some(&kind.name), || PoolEventBody::Scaled { from, to, reason });
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }
}

/// What the worker itself knows.
fn worker_view(worker: &PoolWorker, now: Instant) -> WorkerView {
    let glance = worker.stats(now);
    WorkerView {
        id: worker.id,
        state: glance.state,
        bound: worker.key().is_some(),
        wanted: false,
        drained: glance.drained,
        idle_for: glance.idle_for,
        age: glance.age,
        queries: glance.queries_processed,
        rss: glance.rss.unwrap_or(glance.reserved),
        reserved: glance.reserved,
        due: glance.due,
        replaces: None,
    }
}

fn demand_view(demand: &Demand, now: Instant) -> DemandView {
    let since = |at: Instant| now.saturating_duration_since(at);
    let lanes = demand.lanes.iter().zip(&demand.lanes_since);
    let keys = lanes.filter_map(|(lane, at)| Some((key_of(lane)?, at)));
    DemandView {
        open: demand.open,
        oldest: demand.oldest.map(since),
        lanes: keys.map(|(key, at)| (key.into(), since(*at))).collect(),
    }
}

/// When a kind that may still grow is to be looked at again, though nothing new has happened. When starts that were put off
/// are due is known already, and so is when a worker ends or has started, which is what makes room.
fn next_look(view: &PoolView, kind: &KindView) -> Option<Duration> {
    let put_off = kind.starts == Starts::PutOff;
    if put_off || kind.ready || kind.demand.open <= kind.starting() || !view.has_room_for(kind) {
        return None;
    }
    let after = kind.config.scale_up_after;
    let by_wait = after.saturating_sub(kind.demand.oldest.unwrap_or_default());
    let by_growth = kind.since_growth.map_or(Duration::ZERO, |since| after.saturating_sub(since));
    Some(by_wait.max(by_growth).max(Duration::from_millis(10)))
}
