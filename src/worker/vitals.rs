//! Whether a worker that says nothing is still alive: heartbeats where it sends them, questions where it does not.

use std::time::{Duration, Instant};

/// What a kind expects of its workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expectations {
    /// The worker said that it sends heartbeats.
    pub heartbeats: bool,
    pub warning: Duration,
    pub timeout: Duration,
    /// How often an idle worker without heartbeats is asked.
    pub ping_interval: Duration,
}

/// What the worker is doing as far as the pool knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occupation {
    Idle,
    /// Without heartbeats, only the query's timeout bounds the silence of a busy worker.
    Busy,
}

/// The signs of life of one worker.
#[derive(Debug)]
pub(super) struct Vitals {
    expect: Expectations,
    last_heard: Instant,
    /// When it was asked and has not answered since.
    asked: Option<Instant>,
    warned: bool,
}

/// What is to be done about a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    Fine,
    Ask,
    /// Told once for each silence.
    Worrying(Duration),
    Dead(Duration),
}

impl Vitals {
    pub(super) fn new(expect: Expectations, now: Instant) -> Self {
        Self { expect, last_heard: now, asked: None, warned: false }
    }

    /// Anything it says is a sign of life.
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.asked = None;
        self.warned = false;
    }

    /// Since when it should have said something.
    fn silent_since(&self, occupation: Occupation) -> Option<Instant> {
        if self.expect.heartbeats {
            return Some(self.last_heard);
        }
        self.asked.filter(|_| occupation == Occupation::Idle)
    }

    /// What to do now.
    pub(super) fn check(&mut self, now: Instant, occupation: Occupation) -> Finding {
        if occupation == Occupation::Busy {
            // A question asked before the query began may wait behind it.
            self.asked = None;
        }
        if let Some(since) = self.silent_since(occupation) {
            let silence = now.duration_since(since);
            if silence >= self.expect.timeout {
                return Finding::Dead(silence);
            }
            if silence >= self.expect.warning && !self.warned {
                self.warned = true;
                return Finding::Worrying(silence);
            }
            return Finding::Fine;
        }
        if occupation == Occupation::Idle && now.duration_since(self.last_heard) >= self.expect.ping_interval {
            self.asked = Some(now);
            return Finding::Ask;
        }
        Finding::Fine
    }

    /// When to check next.
    pub(super) fn next_check(&self, occupation: Occupation) -> Option<Instant> {
        match self.silent_since(occupation) {
            Some(since) if self.warned => Some(since + self.expect.timeout),
            Some(since) => Some(since + self.expect.warning),
            None if occupation == Occupation::Idle => Some(self.last_heard + self.expect.ping_interval),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn vitals(heartbeats: bool, now: Instant) -> Vitals {
        let expect = Expectations { heartbeats, warning: SECOND * 15, timeout: SECOND * 30, ping_interval: SECOND * 5 };
        Vitals::new(expect, now)
    }

    #[test]
    fn a_missed_beat_worries_and_only_a_long_silence_kills() {
        let start = Instant::now();
        for occupation in [Occupation::Idle, Occupation::Busy] {
            let mut vitals = vitals(true, start);
            assert_eq!(vitals.check(start + SECOND * 10, occupation), Finding::Fine);
            assert_eq!(vitals.next_check(occupation), Some(start + SECOND * 15));
            assert_eq!(vitals.check(start + SECOND * 15, occupation), Finding::Worrying(SECOND * 15));
            assert_eq!(vitals.check(start + SECOND * 20, occupation), Finding::Fine, "told once");
            assert_eq!(vitals.next_check(occupation), Some(start + SECOND * 30));
            assert_eq!(vitals.check(start + SECOND * 30, occupation), Finding::Dead(SECOND * 30));
            vitals.heard(start + SECOND * 31);
            assert_eq!(vitals.check(start + SECOND * 40, occupation), Finding::Fine);
        }
    }

    #[test]
    fn an_idle_worker_without_heartbeats_is_asked_and_must_answer() {
        let start = Instant::now();
        let mut vitals = vitals(false, start);
        assert_eq!(vitals.next_check(Occupation::Idle), Some(start + SECOND * 5));
        assert_eq!(vitals.check(start + SECOND * 5, Occupation::Idle), Finding::Ask);
        assert_eq!(vitals.check(start + SECOND * 20, Occupation::Idle), Finding::Worrying(SECOND * 15));
        assert_eq!(vitals.check(start + SECOND * 35, Occupation::Idle), Finding::Dead(SECOND * 30));
        vitals.heard(start + SECOND * 36);
        assert_eq!(vitals.check(start + SECOND * 37, Occupation::Idle), Finding::Fine);
        assert_eq!(vitals.check(start + SECOND * 41, Occupation::Idle), Finding::Ask);
    }

    #[test]
    fn a_busy_worker_without_heartbeats_is_left_to_its_timeout() {
        let start = Instant::now();
        let mut vitals = vitals(false, start);
        assert_eq!(vitals.check(start + SECOND * 5, Occupation::Idle), Finding::Ask);
        assert_eq!(vitals.check(start + SECOND * 500, Occupation::Busy), Finding::Fine);
        assert_eq!(vitals.next_check(Occupation::Busy), None);
        assert_eq!(vitals.check(start + SECOND * 501, Occupation::Idle), Finding::Ask, "asked anew, with new patience");
    }
}
