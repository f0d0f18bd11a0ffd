//! Notices if the supervisor stands still: then only a restart of the server helps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// A pass takes milliseconds, and there are two a second at the least. One that takes this long will not end.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Watchdog(Mutex<Life>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// When the supervisor last got through a pass.
    Passed(Instant),
    Ended,
}

/// Marks the supervisor's end, however it comes.
#[derive(Debug)]
pub(super) struct Guarded(pub Arc<Watchdog>);

impl Watchdog {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Life::Passed(now)))
    }

    /// The supervisor got through a pass.
    pub(super) fn passed(&self, now: Instant) {
        let mut life = self.0.lock();
        if *life != Life::Ended {
            *life = Life::Passed(now);
        }
    }

    /// Why the server should be restarted, if it should.
    pub(super) fn alarm(&self, now: Instant) -> Option<String> {
        match *self.0.lock() {
            Life::Ended => Some("the supervisor of the workers has ended".to_owned()),
            Life::Passed(at) => {
                let since = now.saturating_duration_since(at);
                let stuck = || format!("the supervisor of the workers has been stuck for {} s", since.as_secs());
                (since >= PATIENCE).then(stuck)
            }
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        *self.0.0.lock() = Life::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_the_alarm_when_there_was_no_pass_for_long() {
        let start = Instant::now();
        let nearly = Duration::from_millis(29_999);
        let watchdog = Watchdog::new(start);
        assert_eq!(watchdog.alarm(start), None);
        assert_eq!(watchdog.alarm(start + nearly), None);
        let alarm = watchdog.alarm(start + PATIENCE);
        assert_eq!(alarm.as_deref(), Some("the supervisor of the workers has been stuck for 30 s"));
        watchdog.passed(start + PATIENCE);
        assert_eq!(watchdog.alarm(start + PATIENCE + nearly), None, "it goes on");
        assert!(watchdog.alarm(start + PATIENCE * 2).is_some());
    }

    #[test]
    fn raises_the_alarm_for_good_when_the_supervisor_ends_even_by_a_panic() {
        let now = Instant::now();
        let watchdog = Arc::new(Watchdog::new(now));
        let guarded = Guarded(watchdog.clone());
        let panicked = std::thread::spawn(move || {
            let _guarded = guarded;
            panic!("as a test");
        });
        assert!(panicked.join().is_err());
        watchdog.passed(now);
        assert_eq!(watchdog.alarm(now).as_deref(), Some("the supervisor of the workers has ended"));
    }
}
