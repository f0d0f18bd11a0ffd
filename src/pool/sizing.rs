//! Sizing: takes a plain view of the pool, has the next steps planned from it, and keeps what the next plan needs.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{broker::Demand, model::WorkerId, state::PoolLifecycle, worker::PoolWorker};

use super::{
    admission::Admission,
    affinity::lane_key,
    circuit::StartFailures,
    context::PoolContext,
    kinds::{KindSettings, PoolKind},
    plan::{DemandView, KindView, PoolView, StartHealth, Step, WorkerView, plan},
};

/// Keys without a worker that one pass looks at, for each kind.
const MAX_LANES_PER_PASS: usize = 32;

/// Shortest wait for another look at a kind that may grow.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Sizing {
    context: Arc<PoolContext>,
    admission: Arc<Admission>,
    /// The worker that each new one is to replace.
    replacements: HashMap<WorkerId, WorkerId>,
    /// Settings that the workers of each kind were last compared with.
    compared: HashMap<usize, Arc<KindSettings>>,
    /// Time of the next look at the pool, even if nothing happens until then.
    pub(super) next_look: Option<Instant>,
}

impl Sizing {
    pub(super) fn new(context: Arc<PoolContext>, admission: Arc<Admission>) -> Self {
        Self { context, admission, replacements: HashMap::new(), compared: HashMap::new(), next_look: None }
    }

    /// The steps that bring the pool to its proper size.
    pub(super) fn plan(&mut self, now: Instant) -> Vec<Step> {
        self.mark_outdated_workers();
        let view = self.view(now);
        let steps = plan(&view);
        self.withdraw_yield_requests(&steps);
        self.next_look = view.kinds.iter().filter_map(|kind| next_look(&view, kind)).min().map(|wait| now + wait);
        steps
    }

    /// `new` was started to replace `old`.
    pub(super) fn add_replacement(&mut self, new: WorkerId, old: WorkerId) {
        self.replacements.insert(new, old);
    }

    pub(super) fn remove_worker(&mut self, id: WorkerId) {
        self.replacements.retain(|new, old| *new != id && *old != id);
    }

    /// Marks the workers whose settings differ from those of their kind. A kind is compared only after a change: the
    /// comparison is costly, and workers that are started later have the new settings.
    fn mark_outdated_workers(&mut self) {
        for kind in self.context.kinds.all() {
            let settings = kind.settings();
            if self.compared.get(&kind.slot).is_some_and(|last| Arc::ptr_eq(last, &settings)) {
                continue;
            }
            for worker in self.context.registry.all_of_kind(kind.slot) {
                if worker.set_outdated(worker.kind.must_roll(&settings.config)) {
                    // The change was taken back: the worker stays, and is not replaced.
                    self.replacements.retain(|_, old| *old != worker.id);
                }
            }
            self.compared.insert(kind.slot, settings);
        }
    }

    /// Clears the yield requests that the new plan does not repeat.
    fn withdraw_yield_requests(&self, steps: &[Step]) {
        for kind in self.context.kinds.all() {
            let requested = |step: &Step| matches!(step, Step::RequestYield { kind: slot, .. } if *slot == kind.slot);
            if !steps.iter().any(requested) {
                kind.take_yield_request();
            }
        }
    }

    fn view(&self, now: Instant) -> PoolView {
        let config = self.context.config();
        let workers = self.context.workers_by_kind();
        PoolView {
            max_workers: config.pool.max_workers.get(),
            max_starting: config.pool.max_starting.get(),
            memory_budget: config.pool.memory_budget,
            eviction: config.pool.eviction,
            kinds: workers.iter().map(|(kind, workers)| self.kind_view(kind, workers, now)).collect(),
        }
    }

    fn kind_view(&self, kind: &PoolKind, workers: &[Arc<PoolWorker>], now: Instant) -> KindView {
        let broker = &self.context.broker;
        let demand = broker.demand(&kind.name, MAX_LANES_PER_PASS);
        let has_held_queries = demand.waiting > demand.open;
        let worker_views = workers.iter().map(|worker| WorkerView {
            wanted: has_held_queries && broker.has_query_for(&kind.name, worker.id),
            replaces: self.replacements.get(&worker.id).copied(),
            ..worker_view(worker, now)
        });
        let worker_views = worker_views.collect();
        let busy = workers.iter().filter(|worker| worker.is_busy()).count();
        let (stopping, removed) = (self.admission.lifecycle() == PoolLifecycle::Draining, kind.is_removed());
        let mut scaling = kind.scaling.lock();
        let config = kind.config();
        scaling.observe(demand.waiting, busy, now);
        let mut view = KindView {
            kind: kind.slot,
            short_for: Duration::ZERO,
            floor: if stopping || removed { 0 } else { scaling.floor(config.min) },
            shrink_to: scaling.shrink_to,
            removed,
            unfinished: if removed { broker.unfinished_count_of(&kind.name) } else { 0 },
            starts: start_health(&kind.start_failures.lock(), now),
            demand: demand_view(&demand, now),
            ready: !kind.ready.is_empty(),
            since_growth: scaling.since_growth(now),
            quiet_for: scaling.quiet_for(now).filter(|_| !stopping),
            peak_busy: scaling.peak_busy,
            workers: worker_views,
            config,
        };
        view.short_for = scaling.observe_shortage(view.live() < view.floor, now);
        // A request to shrink is met once: the load may make the kind grow again later.
        scaling.shrink_to = view.shrink_to.filter(|target| view.live() > *target);
        view
    }
}

fn worker_view(worker: &PoolWorker, now: Instant) -> WorkerView {
    let stats = worker.stats(now);
    WorkerView {
        id: worker.id,
        state: stats.state,
        bound: worker.key().is_some(),
        wanted: false,
        drained: stats.drained,
        idle_for: stats.idle_for,
        age: stats.age,
        queries: stats.queries_processed,
        rss: stats.rss.unwrap_or(stats.reserved),
        reserved: stats.reserved,
        due: stats.due,
        replaces: None,
    }
}

fn start_health(failures: &StartFailures, now: Instant) -> StartHealth {
    match failures.not_before {
        Some(at) if at > now => StartHealth::Delayed,
        _ if failures.count > 0 => StartHealth::Failing,
        _ => StartHealth::Good,
    }
}

fn demand_view(demand: &Demand, now: Instant) -> DemandView {
    let since = |at: Instant| now.saturating_duration_since(at);
    let lanes = demand.lanes.iter().zip(&demand.lanes_since);
    let keys = lanes.filter_map(|(lane, at)| Some((lane_key(lane)?, at)));
    DemandView {
        open: demand.open,
        oldest: demand.oldest.map(since),
        lanes: keys.map(|(key, at)| (key.into(), since(*at))).collect(),
    }
}

/// Time until a kind that may still grow is to be looked at again though nothing new happens. Delayed starts, and workers
/// that start or end, wake the supervisor by themselves.
fn next_look(view: &PoolView, kind: &KindView) -> Option<Duration> {
    let delayed = kind.starts == StartHealth::Delayed;
    if delayed || kind.ready || kind.demand.open <= kind.starting() || !view.has_capacity_for(kind) {
        return None;
    }
    let after = kind.config.scale_up_after;
    let by_wait = after.saturating_sub(kind.demand.oldest.unwrap_or_default());
    let by_growth = kind.since_growth.map_or(Duration::ZERO, |since| after.saturating_sub(since));
    Some(by_wait.max(by_growth).max(LOOK_INTERVAL_MIN))
}
