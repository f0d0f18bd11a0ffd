//! The autoscaler's memory of a kind between two plans.

use std::time::{Duration, Instant};

/// A kind counts as quiet while nothing waits and fewer workers than this are busy.
const QUIET_BELOW_BUSY: usize = 5;

#[derive(Debug, Default)]
pub(super) struct KindScaling {
    /// Minimum size that an operator asked for.
    pub requested_floor: Option<usize>,
    /// Size that an operator asked to shrink to, until it is reached.
    pub shrink_to: Option<usize>,
    last_growth: Option<Instant>,
    quiet_since: Option<Instant>,
    /// Most workers that were busy at once in the quiet time.
    pub peak_busy: usize,
    /// Start of the time in which the kind has fewer workers than its floor.
    short_since: Option<Instant>,
    /// Workers that ended in failure and were not replaced yet.
    unreplaced: usize,
}

impl KindScaling {
    /// Number of workers that the kind keeps whatever the load.
    pub(super) fn floor(&self, min: usize) -> usize {
        self.requested_floor.unwrap_or(0).max(min)
    }

    /// Number of workers that operators have asked for, given that `live` live now.
    pub(super) fn target(&self, live: usize, min: usize) -> usize {
        self.shrink_to.unwrap_or(live).max(self.floor(min))
    }

    /// Brings requested sizes within the limits of a changed configuration, and the kind within its new maximum.
    pub(super) fn apply_limits(&mut self, min: usize, max: usize) {
        let requested_floor = self.requested_floor.map(|floor| floor.clamp(min, max));
        let shrink_to = Some(self.shrink_to.map_or(max, |target| target.min(max)));
        *self = Self { requested_floor, shrink_to, ..Self::default() };
    }

    pub(super) fn observe(&mut self, waiting: usize, busy: usize, now: Instant) {
        if waiting > 0 || busy >= QUIET_BELOW_BUSY {
            self.quiet_since = None;
            self.peak_busy = 0;
        } else {
            self.quiet_since.get_or_insert(now);
            self.peak_busy = self.peak_busy.max(busy);
        }
    }

    /// Records whether the kind has fewer workers than its floor, and returns for how long it has.
    pub(super) fn observe_shortage(&mut self, is_short: bool, now: Instant) -> Duration {
        if !is_short {
            self.short_since = None;
            return Duration::ZERO;
        }
        now.saturating_duration_since(*self.short_since.get_or_insert(now))
    }

    pub(super) fn record_failure(&mut self) {
        self.unreplaced += 1;
    }

    /// Returns how many of the started workers replace one that failed.
    pub(super) fn record_growth(&mut self, started: usize, now: Instant) -> usize {
        self.last_growth = Some(now);
        self.quiet_since = None;
        let replaced = self.unreplaced.min(started);
        self.unreplaced -= replaced;
        replaced
    }

    /// Starts the quiet time anew, so that the kind shrinks in steps.
    pub(super) fn record_shrink(&mut self, now: Instant) {
        self.quiet_since = Some(now);
        self.peak_busy = 0;
        self.unreplaced = 0;
    }

    pub(super) fn since_growth(&self, now: Instant) -> Option<Duration> {
        self.last_growth.map(|at| now.saturating_duration_since(at))
    }

    pub(super) fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.quiet_since.map(|at| now.saturating_duration_since(at))
    }
}
