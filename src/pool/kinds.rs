//! The kinds of a pool: the table of them, and everything that belongs to one.

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};

use crate::{
    config::{Affinity, KindConfig},
    metrics::KindMetrics,
    model::QuerySpec,
};

use super::{affinity::Whereabouts, circuit::Trouble, events::EventBus};

/// All kinds there are or were. A kind keeps its place for as long as the server runs, so that a place once known stays
/// good; one that is no longer configured is marked as such, and may come back.
#[derive(Debug, Default)]
pub(super) struct Kinds(RwLock<Vec<Arc<Kind>>>);

#[derive(Debug)]
pub(super) struct Kind {
    pub slot: usize,
    pub name: Arc<str>,
    settings: RwLock<Arc<Settings>>,
    pub metrics: Arc<KindMetrics>,
    pub events: Arc<EventBus>,
    pub trouble: Mutex<Trouble>,
    pub scaling: Mutex<Scaling>,
    /// Which worker served which key or session.
    pub whereabouts: Whereabouts,
    /// What every worker of the kind can do beside what the configuration says, as far as they told.
    learned: RwLock<Vec<String>>,
    removed: AtomicBool,
    /// The next worker that is done with its query makes room for a key that has waited long.
    give_way: Mutex<Option<String>>,
}

/// What a kind's next worker is started with.
#[derive(Debug)]
pub(super) struct Settings {
    pub config: Arc<KindConfig>,
    /// What it inherits of the server's environment, and what its kind adds.
    pub environment: Arc<[(String, String)]>,
}

/// What the autoscaler remembers of a kind.
#[derive(Debug, Default)]
pub(super) struct Scaling {
    /// Someone asked for at least this many.
    pub floor: Option<usize>,
    /// Someone asked for no more than this many, and there are still more.
    pub shrink_to: Option<usize>,
    last_growth: Option<Instant>,
    quiet_since: Option<Instant>,
    peak_busy: usize,
    /// Since when there are fewer workers than the kind is to keep.
    short_since: Option<Instant>,
    /// Workers that ended in failure and in whose place none was started yet.
    lost: usize,
}

/// A kind is quiet while fewer workers than this are busy.
const BUSY: usize = 5;

impl Kinds {
    pub(super) fn get(&self, slot: usize) -> Arc<Kind> {
        self.0.read()[slot].clone()
    }

    /// Those that are configured, and those that still have something to finish.
    pub(super) fn all(&self) -> Vec<Arc<Kind>> {
        self.0.read().clone()
    }

    pub(super) fn configured(&self) -> Vec<Arc<Kind>> {
        self.0.read().iter().filter(|kind| !kind.is_removed()).cloned().collect()
    }

    /// The only configured kind, or the one of this name.
    pub(super) fn only(&self, name: Option<&str>) -> Option<Arc<Kind>> {
        let kinds = self.0.read();
        let mut fitting = kinds.iter().filter(|kind| !kind.is_removed() && name.is_none_or(|name| *kind.name == *name));
        fitting.next().filter(|_| fitting.next().is_none()).cloned()
    }

    pub(super) fn named(&self, name: &str) -> Option<Arc<Kind>> {
        self.0.read().iter().find(|kind| *kind.name == *name).cloned()
    }

    pub(super) fn add(&self, settings: Settings, metrics: Arc<KindMetrics>, events: Arc<EventBus>) -> Arc<Kind> {
        let mut kinds = self.0.write();
        let kind = Arc::new(Kind::new(kinds.len(), settings, metrics, events));
        kinds.push(kind.clone());
        kind
    }
}

impl Kind {
    fn new(slot: usize, settings: Settings, metrics: Arc<KindMetrics>, events: Arc<EventBus>) -> Self {
        Self {
            slot,
            name: settings.config.name.clone(),
            settings: RwLock::new(Arc::new(settings)),
            metrics,
            events,
            trouble: Mutex::default(),
            scaling: Mutex::default(),
            whereabouts: Whereabouts::default(),
            learned: RwLock::default(),
            removed: AtomicBool::new(false),
            give_way: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    pub(super) fn config(&self) -> Arc<KindConfig> {
        self.settings.read().config.clone()
    }

    /// Puts a changed configuration in force.
    pub(super) fn reconfigure(&self, settings: Settings) {
        self.forget_trouble();
        // Whoever holds this lock sees both, or neither.
        let mut scaling = self.scaling.lock();
        scaling.limit(settings.config.min, settings.config.max.get());
        *self.settings.write() = Arc::new(settings);
        drop(scaling);
        self.removed.store(false, Relaxed);
    }

    /// It is no longer configured: nothing new comes, what was accepted is finished.
    pub(super) fn remove(&self) {
        *self.scaling.lock() = Scaling::default();
        self.removed.store(true, Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Takes note of what all of the kind's workers say they can do: only what each of them can counts. They are asked
    /// under the lock, so that whoever asks last is also the last to write.
    pub(super) fn learn(&self, ask: impl FnOnce() -> Vec<Vec<String>>) {
        let mut learned = self.learned.write();
        let told = ask();
        let Some((first, others)) = told.split_first() else { return };
        let common = first.iter().filter(|able| others.iter().all(|other| other.contains(able)));
        *learned = common.cloned().collect();
    }

    /// Whether its workers can do all of this.
    pub(super) fn is_capable_of(&self, wanted: &[Box<str>]) -> bool {
        let config = self.config();
        let learned = self.learned.read();
        let has = |able: &str| config.capabilities.iter().chain(learned.iter()).any(|known| known == able);
        wanted.iter().all(|able| has(able))
    }

    pub(super) fn capabilities(&self) -> Vec<String> {
        let mut all = self.config().capabilities.clone();
        all.extend(self.learned.read().iter().cloned());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether queries of one lane must reach the same worker, and not just should.
    pub(super) fn is_strict(&self) -> bool {
        is_strict(&self.config())
    }

    pub(super) fn ask_to_give_way(&self, reason: String) {
        *self.give_way.lock() = Some(reason);
    }

    pub(super) fn asked_to_give_way(&self) -> Option<String> {
        self.give_way.lock().take()
    }
}

/// Whether queries of one lane must reach the same worker.
pub(super) fn is_strict(config: &KindConfig) -> bool {
    config.keyed || config.affinity == Affinity::Strict
}

/// Whether queries of one lane must, or should, reach the same worker.
pub(super) fn has_affinity(config: &KindConfig) -> bool {
    config.keyed || config.affinity != Affinity::Off
}

const KEY: &str = "key ";
const SESSION: &str = "session ";

/// What a query has in common with others that its kind may want to reach the same worker. What the kind makes of it does
/// not matter here: that may change while the query waits.
pub(super) fn lane(spec: &QuerySpec) -> Option<Arc<str>> {
    let by_key = spec.key.as_deref().map(key_lane);
    by_key.or_else(|| spec.session_id().map(session_lane))
}

pub(super) fn key_lane(key: &str) -> Arc<str> {
    format!("{KEY}{key}").into()
}

/// The lane of a session where it has no key.
pub(super) fn session_lane(session_id: &str) -> Arc<str> {
    format!("{SESSION}{session_id}").into()
}

/// The key that a lane is of, unless it is a session's.
pub(super) fn key_of(lane: &str) -> Option<&str> {
    lane.strip_prefix(KEY)
}

impl Scaling {
    /// How many workers the kind keeps, whatever the load.
    pub(super) fn floor(&self, min: usize) -> usize {
        self.floor.unwrap_or(0).max(min)
    }

    /// How many workers the kind is to have, as far as anyone said, if so many live now.
    pub(super) fn wanted(&self, live: usize, min: usize) -> usize {
        self.shrink_to.unwrap_or(live).max(self.floor(min))
    }

    /// A changed configuration: a size that was asked for holds within the new limits, which hold at once.
    fn limit(&mut self, min: usize, max: usize) {
        let floor = self.floor.map(|floor| floor.clamp(min, max));
        let shrink_to = Some(self.shrink_to.map_or(max, |target| target.min(max)));
        *self = Self { floor, shrink_to, ..Self::default() };
    }

    /// Takes note of how things stand.
    pub(super) fn observe(&mut self, waiting: usize, busy: usize, now: Instant) {
        if waiting > 0 || busy >= BUSY {
            self.quiet_since = None;
            self.peak_busy = 0;
        } else {
            self.quiet_since.get_or_insert(now);
            self.peak_busy = self.peak_busy.max(busy);
        }
    }

    /// Takes note of whether there are fewer workers than are to be kept, and says for how long.
    pub(super) fn short_for(&mut self, is_short: bool, now: Instant) -> Duration {
        if !is_short {
            self.short_since = None;
            return Duration::ZERO;
        }
        now.saturating_duration_since(*self.short_since.get_or_insert(now))
    }

    pub(super) fn lost_one(&mut self) {
        self.lost += 1;
    }

    /// Workers were started. Says how many of them take the place of one that failed.
    pub(super) fn grew(&mut self, started: usize, now: Instant) -> usize {
        self.last_growth = Some(now);
        self.quiet_since = None;
        let replaced = self.lost.min(started);
        self.lost -= replaced;
        replaced
    }

    /// The next step down is not taken before it has been quiet as long again.
    pub(super) fn shrank(&mut self, now: Instant) {
        self.quiet_since = Some(now);
        self.peak_busy = 0;
        self.lost = 0;
    }

    pub(super) fn since_growth(&self, now: Instant) -> Option<Duration> {
        self.last_growth.map(|at| now.saturating_duration_since(at))
    }

    pub(super) fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.quiet_since.map(|at| now.saturating_duration_since(at))
    }

    pub(super) fn peak_busy(&self) -> usize {
        self.peak_busy
    }
}
