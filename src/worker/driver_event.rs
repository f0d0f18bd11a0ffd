//! The events that a driver waits for while its worker is in service.

use std::{future::pending, pin::Pin};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::broker::AppendError;

use super::{
    connection::ReadOutcome,
    driver::Driver,
    liveness::{Liveness, Occupation},
    running::RunningQuery,
};

pub(super) enum DriverEvent {
    Read(ReadOutcome),
    /// The log took the backlog, or refused it.
    Appended(Result<(), AppendError>),
    Exited,
    /// The driver was notified.
    Notified,
    /// It is time to look at the timers, or a bit too early.
    Timer,
}

/// The timers that run while a worker is in service.
pub(super) struct DriverTimers {
    pub next_measurement: Instant,
    pub liveness: Liveness,
    alarm: Pin<Box<Sleep>>,
}

impl DriverTimers {
    pub(super) fn new(next_measurement: Instant, liveness: Liveness) -> Self {
        Self { next_measurement, liveness, alarm: Box::pin(sleep_until(next_measurement)) }
    }

    /// Has the alarm go off by `at`, or earlier: deadlines mostly move away, and to reset the alarm each time would cost
    /// more than a look in vain now and then.
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

    /// True while the worker is not read from, because the log has no room for its output.
    pub(super) fn is_stalled(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.backlog.is_empty())
    }

    /// Time of the next check for silence.
    pub(super) fn next_liveness_check(&self, timers: &DriverTimers) -> Option<Instant> {
        if self.is_stalled() { None } else { timers.liveness.next_check(self.occupation()).map(Into::into) }
    }

    pub(super) fn query_deadline(&self) -> Option<Instant> {
        self.running.as_ref().and_then(RunningQuery::deadline)
    }

    pub(super) async fn next_event(&mut self, timers: &mut DriverTimers) -> DriverEvent {
        let deadlines = [self.query_deadline(), self.next_liveness_check(timers)].into_iter().flatten();
        timers.set_alarm(deadlines.fold(timers.next_measurement, Instant::min));
        let stalled = self.is_stalled();
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        let outbox = self.worker.outbox().expect("a worker in service is connected");
        let running = &mut self.running;
        let appended = async {
            match running {
                Some(running) => running.append_backlog().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased; // Reads come last, so that a flood of output cannot delay a cancel.
            () = self.worker.driver_notify.notified() => DriverEvent::Notified,
            () = &mut timers.alarm => DriverEvent::Timer,
            () = process.wait_for_exit() => DriverEvent::Exited,
            appended = appended, if stalled => DriverEvent::Appended(appended),
            outcome = connection.read(), if !stalled => DriverEvent::Read(outcome),
            () = outbox.flush(), if outbox.has_unsent() => DriverEvent::Notified,
        }
    }
}
