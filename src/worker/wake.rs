//! What a worker's driver waits for while the worker is in service.

use std::{future::pending, pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::broker::AppendError;

use super::{
    connection::Fill,
    driver::Driver,
    running::{Running, append},
    vitals::{Occupation, Vitals},
};

/// A driver looks at its clocks at least this often, whatever happens.
pub(super) const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// What ended the driver's wait.
pub(super) enum Wake {
    Bytes(Fill),
    Appended(Result<(), AppendError>),
    Exited,
    Attention,
    /// It is time to look at the clocks; perhaps a bit too early.
    Clock,
}

/// The clocks that run while a worker is in service.
pub(super) struct Clocks {
    pub measure: Instant,
    pub vitals: Vitals,
    alarm: Pin<Box<Sleep>>,
}

impl Clocks {
    pub(super) fn new(measure: Instant, vitals: Vitals) -> Self {
        Self { measure, vitals, alarm: Box::pin(sleep_until(measure)) }
    }

    /// Has the alarm go off by then. It may go off earlier: what is waited for mostly moves away, and to set an alarm costs
    /// more than to look in vain now and then.
    fn set_alarm(&mut self, at: Instant) {
        if self.alarm.is_elapsed() || at < self.alarm.deadline() {
            self.alarm.as_mut().reset(at);
        }
    }
}

impl Driver {
    pub(super) fn occupation(&self) -> Occupation {
        if self.running.is_some() { Occupation::Busy } else { Occupation::Idle }
    }

    /// Whether the worker is not read from, because its readers are slow to take what it has said.
    pub(super) fn is_stalled(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.backlog.is_empty())
    }

    /// When the worker's silence is to be looked at.
    pub(super) fn next_check(&self, clocks: &Clocks) -> Option<Instant> {
        if self.is_stalled() { None } else { clocks.vitals.next_check(self.occupation()).map(Into::into) }
    }

    /// When patience with the running query runs out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().and_then(Running::deadline)
    }

    pub(super) async fn wake(&mut self, clocks: &mut Clocks) -> Wake {
        let times = [self.deadline(), self.next_check(clocks)].into_iter().flatten();
        clocks.set_alarm(times.fold(clocks.measure, Instant::min));
        let stalled = self.is_stalled();
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        let outbox = self.worker.outbox().expect("a worker in service is connected");
        let running = &mut self.running;
        let appended = async {
            match running {
                Some(running) => append(&mut running.lease, &mut running.backlog).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased; // A flood of output comes last, so that it cannot keep a cancel from being seen.
            () = self.worker.attention.notified() => Wake::Attention,
            () = &mut clocks.alarm => Wake::Clock,
            () = process.ended() => Wake::Exited,
            appended = appended, if stalled => Wake::Appended(appended),
            fill = connection.fill(), if !stalled => Wake::Bytes(fill),
            () = outbox.flush(), if outbox.has_unsent() => Wake::Attention,
        }
    }
}
