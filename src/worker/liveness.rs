//! Decides whether a silent worker is alive: by heartbeats if it sends them, otherwise by pings while it is idle.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::config::KindConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occupation {
    Idle,
    /// Without heartbeats, only the query's timeout bounds the silence of a busy worker.
    Busy,
}

/// The signs of life of one worker.
#[derive(Debug)]
pub(super) struct Liveness {
    kind: Arc<KindConfig>,
    /// The worker announced heartbeats.
    heartbeats: bool,
    last_heard: Instant,
    /// Time of a ping without an answer.
    pinged: Option<Instant>,
    warned: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivenessFinding {
    Alive,
    /// A ping is to be sent.
    Ping,
    /// Silent for so long that it is logged, once for each silence.
    Silent(Duration),
    Dead(Duration),
}

impl Liveness {
    pub(super) fn new(kind: Arc<KindConfig>, heartbeats: bool, now: Instant) -> Self {
        Self { kind, heartbeats, last_heard: now, pinged: None, warned: false }
    }

    /// Any output is a sign of life.
    pub(super) fn record_output(&mut self, now: Instant) {
        self.last_heard = now;
        self.pinged = None;
        self.warned = false;
    }

    /// Start of the silence that counts.
    fn silent_since(&self, occupation: Occupation) -> Option<Instant> {
        if self.heartbeats {
            return Some(self.last_heard);
        }
        self.pinged.filter(|_| occupation == Occupation::Idle)
    }

    pub(super) fn check(&mut self, now: Instant, occupation: Occupation) -> LivenessFinding {
        if occupation == Occupation::Busy {
            // The answer to a ping from before the query may come after it.
            self.pinged = None;
        }
        if let Some(since) = self.silent_since(occupation) {
            let silence = now.duration_since(since);
            if silence >= self.kind.heartbeat_timeout {
                return LivenessFinding::Dead(silence);
            }
            if silence >= self.kind.heartbeat_warning && !self.warned {
                self.warned = true;
                return LivenessFinding::Silent(silence);
            }
            return LivenessFinding::Alive;
        }
        if occupation == Occupation::Idle && now.duration_since(self.last_heard) >= self.kind.ping_interval {
            self.pinged = Some(now);
            return LivenessFinding::Ping;
        }
        LivenessFinding::Alive
    }

    /// Time of the next check.
    pub(super) fn next_check(&self, occupation: Occupation) -> Option<Instant> {
        match self.silent_since(occupation) {
            Some(since) if self.warned => Some(since + self.kind.heartbeat_timeout),
            Some(since) => Some(since + self.kind.heartbeat_warning),
            None if occupation == Occupation::Idle => Some(self.last_heard + self.kind.ping_interval),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests, *};

    const SECOND: Duration = Duration::from_secs(1);

    fn liveness(heartbeats: bool, now: Instant) -> Liveness {
        let settings = "heartbeat_warning = \"15s\"\nheartbeat_timeout = \"30s\"\nping_interval = \"5s\"";
        Liveness::new(Arc::new(tests::kind(settings)), heartbeats, now)
    }

    #[test]
    fn missed_beat_is_reported_and_only_a_long_silence_kills() {
        let start = Instant::now();
        for occupation in [Occupation::Idle, Occupation::Busy] {
            let mut liveness = liveness(true, start);
            assert_eq!(liveness.check(start + SECOND * 10, occupation), LivenessFinding::Alive);
            assert_eq!(liveness.next_check(occupation), Some(start + SECOND * 15));
            assert_eq!(liveness.check(start + SECOND * 15, occupation), LivenessFinding::Silent(SECOND * 15));
            assert_eq!(liveness.check(start + SECOND * 20, occupation), LivenessFinding::Alive, "reported once");
            assert_eq!(liveness.next_check(occupation), Some(start + SECOND * 30));
            assert_eq!(liveness.check(start + SECOND * 30, occupation), LivenessFinding::Dead(SECOND * 30));
            liveness.record_output(start + SECOND * 31);
            assert_eq!(liveness.check(start + SECOND * 40, occupation), LivenessFinding::Alive);
        }
    }

    #[test]
    fn idle_worker_without_heartbeats_is_pinged_and_must_answer() {
        let start = Instant::now();
        let mut liveness = liveness(false, start);
        assert_eq!(liveness.next_check(Occupation::Idle), Some(start + SECOND * 5));
        assert_eq!(liveness.check(start + SECOND * 5, Occupation::Idle), LivenessFinding::Ping);
        assert_eq!(liveness.check(start + SECOND * 20, Occupation::Idle), LivenessFinding::Silent(SECOND * 15));
        assert_eq!(liveness.check(start + SECOND * 35, Occupation::Idle), LivenessFinding::Dead(SECOND * 30));
        liveness.record_output(start + SECOND * 36);
        assert_eq!(liveness.check(start + SECOND * 37, Occupation::Idle), LivenessFinding::Alive);
        assert_eq!(liveness.check(start + SECOND * 41, Occupation::Idle), LivenessFinding::Ping);
    }

    #[test]
    fn busy_worker_without_heartbeats_is_left_to_its_timeout() {
        let start = Instant::now();
        let mut liveness = liveness(false, start);
        assert_eq!(liveness.check(start + SECOND * 5, Occupation::Idle), LivenessFinding::Ping);
        assert_eq!(liveness.check(start + SECOND * 500, Occupation::Busy), LivenessFinding::Alive);
        assert_eq!(liveness.next_check(Occupation::Busy), None);
        assert_eq!(
            liveness.check(start + SECOND * 501, Occupation::Idle),
            LivenessFinding::Ping,
            "pinged again, with a new timeout"
        );
    }
}
