//! How far a run has come, for whoever shows it meanwhile.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{drive::Extent, subject::Subject};

#[derive(Debug, Default)]
pub struct Progress {
    /// Queries of this round that have ended.
    ended: AtomicU64,
    stage: Mutex<Option<Stage>>,
}

/// The round that runs.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    pub subject: Subject,
    /// 0 while it warms up.
    pub round: u32,
    begun: Instant,
    extent: Extent,
}

/// Where a round stands.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    pub stage: Stage,
    pub ended: u64,
    /// Of the round, from 0 to 1.
    pub share: f64,
    pub elapsed: Duration,
}

impl Progress {
    pub(super) fn begin(&self, subject: Subject, round: u32, extent: Extent) {
        self.ended.store(0, Ordering::Relaxed);
        *self.stage.lock() = Some(Stage { subject, round, begun: Instant::now(), extent });
    }

    pub(super) fn one_more(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` before the first round.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than a few digits")]
    pub fn standing(&self) -> Option<Standing> {
        let stage = (*self.stage.lock())?;
        let (ended, elapsed) = (self.ended.load(Ordering::Relaxed), stage.begun.elapsed());
        let share = match stage.extent {
            Extent::For(duration) => elapsed.as_secs_f64() / duration.as_secs_f64(),
            Extent::Count(count) => ended as f64 / count as f64,
        };
        Some(Standing { stage, ended, share: share.min(1.0), elapsed })
    }
}
