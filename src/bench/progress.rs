//! The progress of a run, for a progress bar.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{drive::RoundLength, subject::Subject};

#[derive(Debug, Default)]
pub struct Progress {
    /// Queries of the current round that have ended.
    ended: AtomicU64,
    round: Mutex<Option<CurrentRound>>,
}

#[derive(Debug, Clone, Copy)]
pub struct CurrentRound {
    pub subject: Subject,
    /// 0 during the warm-up.
    pub number: u32,
    begun: Instant,
    length: RoundLength,
}

/// The progress at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ProgressSnapshot {
    pub round: CurrentRound,
    pub ended: u64,
    /// Part of the round that is done, from 0 to 1.
    pub share: f64,
    pub elapsed: Duration,
}

impl Progress {
    pub(super) fn begin(&self, subject: Subject, number: u32, length: RoundLength) {
        self.ended.store(0, Ordering::Relaxed);
        *self.round.lock() = Some(CurrentRound { subject, number, begun: Instant::now(), length });
    }

    pub(super) fn record_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` before the first round.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than a few digits")]
    pub fn snapshot(&self) -> Option<ProgressSnapshot> {
        let round = (*self.round.lock())?;
        let (ended, elapsed) = (self.ended.load(Ordering::Relaxed), round.begun.elapsed());
        let share = match round.length {
            RoundLength::Duration(duration) => elapsed.as_secs_f64() / duration.as_secs_f64(),
            RoundLength::Queries(count) => ended as f64 / count as f64,
        };
        Some(ProgressSnapshot { round, ended, share: share.min(1.0), elapsed })
    }
}
