//! A recorded load of several minutes against the decisions, with a clock that does not wait.

use std::{collections::VecDeque, time::Instant};

use super::*;
use crate::pool::kind_scaling::KindScaling;

/// Time between two plans.
const STEP: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_secs(2);
const SERVICE: Duration = Duration::from_millis(500);

/// Queries a second, second after second, in stretches of (seconds, first rate, last rate).
struct Load(&'static [(u32, f64, f64)]);

impl Load {
    fn length(&self) -> Duration {
        Duration::from_secs(self.0.iter().map(|(length, ..)| u64::from(*length)).sum())
    }

    fn rate(&self, at: Duration) -> f64 {
        let mut into = at.as_secs_f64();
        for &(length, first, last) in self.0 {
            if into < f64::from(length) {
                return first + (last - first) * into / f64::from(length);
            }
            into -= f64::from(length);
        }
        0.0
    }
}

struct Simulation {
    epoch: Instant,
    /// Since the epoch.
    now: Duration,
    kind: KindView,
    scaling: KindScaling,
    /// Arrival time of each waiting query.
    queue: VecDeque<Duration>,
    /// Fraction of a query that has not arrived yet.
    fraction: f64,
    next_id: u64,
    /// End of each worker's start or query; once past, the time since which it is free.
    until: Vec<Duration>,
    longest_wait: Duration,
    /// The number of workers each time it changed, and when.
    course: Vec<(Duration, usize)>,
}

impl Simulation {
    fn new(settings: &str) -> Self {
        Self {
            epoch: Instant::now(),
            now: Duration::ZERO,
            kind: kind("k", settings),
            scaling: KindScaling::default(),
            queue: VecDeque::new(),
            fraction: 0.0,
            next_id: 0,
            until: Vec::new(),
            longest_wait: Duration::ZERO,
            course: Vec::new(),
        }
    }

    fn run(mut self, load: &Load) -> Self {
        while self.now < load.length() {
            self.fraction += load.rate(self.now) * STEP.as_secs_f64();
            while self.fraction >= 1.0 {
                self.fraction -= 1.0;
                self.queue.push_back(self.now);
            }
            self.work();
            self.decide();
            self.now += STEP;
        }
        self
    }

    /// Workers that are done become free, and free ones take what waits, the one that has been free longest first.
    fn work(&mut self) {
        for (worker, until) in self.kind.workers.iter_mut().zip(&self.until) {
            if *until <= self.now {
                worker.state = WorkerState::Ready;
                worker.idle_for = self.now.saturating_sub(*until);
            }
        }
        let mut free: Vec<usize> = (0..self.until.len()).filter(|at| self.kind.workers[*at].is_free()).collect();
        free.sort_by_key(|at| self.until[*at]);
        for at in free {
            let Some(arrived) = self.queue.pop_front() else { return };
            self.longest_wait = self.longest_wait.max(self.now.saturating_sub(arrived));
            self.kind.workers[at].state = WorkerState::Processing;
            self.until[at] = self.now + SERVICE;
        }
    }

    fn decide(&mut self) {
        let now = self.epoch + self.now;
        let busy = self.kind.workers.iter().filter(|worker| worker.state == WorkerState::Processing).count();
        self.scaling.observe(self.queue.len(), busy, now);
        let oldest = self.queue.front().map(|arrived| self.now.saturating_sub(*arrived));
        self.kind.demand = DemandView { open: self.queue.len(), oldest, lanes: Vec::new() };
        self.kind.ready = self.kind.workers.iter().any(WorkerView::is_free);
        self.kind.since_growth = self.scaling.since_growth(now);
        self.kind.quiet_for = self.scaling.quiet_for(now);
        self.kind.peak_busy = self.scaling.peak_busy;
        for step in plan(&PoolView { max_starting: 20, ..pool([self.kind.clone()]) }) {
            match step {
                Step::Grow { keys, .. } => {
                    self.scaling.record_growth(keys.len(), now);
                    for _ in keys {
                        self.start();
                    }
                }
                Step::Shrink { workers, .. } => {
                    self.scaling.record_shrink(now);
                    for id in workers {
                        self.stop(id);
                    }
                }
                other => panic!("not expected here: {other:?}"),
            }
        }
        let workers = self.kind.workers.len();
        if self.course.last().is_none_or(|(_, last)| *last != workers) {
            self.course.push((self.now, workers));
        }
    }

    fn start(&mut self) {
        self.next_id += 1;
        self.kind.workers.push(starting(self.next_id));
        self.until.push(self.now + START);
    }

    fn stop(&mut self, id: WorkerId) {
        let at = self.kind.workers.iter().position(|worker| worker.id == id).unwrap();
        assert!(self.kind.workers[at].is_free(), "only free workers are stopped");
        self.kind.workers.remove(at);
        self.until.remove(at);
    }

    /// The numbers of workers between two times, in seconds, beginning with the number that stood at the first.
    fn between(&self, from: u64, to: u64) -> Vec<usize> {
        let (from, to) = (Duration::from_secs(from), Duration::from_secs(to));
        let before = self.course.iter().rev().find(|(at, _)| *at < from).map(|(_, workers)| *workers);
        let changes = self.course.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, workers)| *workers);
        before.into_iter().chain(changes).collect()
    }
}

const SETTINGS: &str = "min = 2\nmax = 20\nscale_up_after = \"100ms\"\nscale_down_after = \"1m\"\nidle_ttl = \"10m\"";

const RECORDED: Load = Load(&[
    (60, 1.0, 1.0),     // Quiet: one query each second, which is half a worker.
    (60, 1.0, 12.0),    // A ramp up to six workers.
    (10, 120.0, 120.0), // A burst of 1,200 queries.
    (180, 12.0, 12.0),  // A plateau.
    (420, 1.0, 1.0),    // Quiet again.
]);

#[test]
fn recorded_load_makes_the_pool_grow_hold_and_shrink_to_its_minimum() {
    let run = Simulation::new(SETTINGS).run(&RECORDED);
    assert_eq!(run.between(1, 60), [2], "while it is quiet the minimum is enough");
    let ramp = run.between(60, 120);
    assert!(ramp.is_sorted(), "the ramp only adds workers: {ramp:?}");
    assert!((6..=9).contains(ramp.last().unwrap()), "six are needed, and hardly more are started: {ramp:?}");
    let burst = run.between(120, 130);
    assert!(burst.is_sorted());
    assert_eq!(burst.last(), Some(&20), "the burst takes all there may be: {burst:?}");
    assert!(burst.windows(2).any(|pair| pair[1] - pair[0] == 10), "in a step: {burst:?}");
    assert_eq!(run.between(130, 310), [20], "on the plateau the number stays as it is");
    assert_eq!(run.between(310, 730), [20, 15, 10, 5, 2], "and then it goes down in steps");
    let down: Vec<Duration> = run.course.iter().rev().take(4).map(|(at, _)| *at).collect();
    assert!(down.windows(2).all(|pair| pair[0] >= pair[1] + Duration::from_mins(1)), "with time between: {down:?}");
    assert!(run.queue.is_empty());
    assert!(run.longest_wait < Duration::from_mins(1), "nobody starved: {:?}", run.longest_wait);
}

#[test]
fn load_that_comes_in_waves_does_not_make_the_pool_swing() {
    // Three workers' worth for half a minute, then next to nothing for as long, ten times over.
    const WAVES: Load = Load(&[
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
        (30, 6.0, 6.0),
        (30, 0.1, 0.1),
    ]);
    let run = Simulation::new(SETTINGS).run(&WAVES);
    let course: Vec<usize> = run.course.iter().map(|(_, workers)| *workers).collect();
    let turns = course.windows(3).filter(|three| (three[0] < three[1]) != (three[1] < three[2])).count();
    assert!(turns <= 1, "up, perhaps a little down, and then it stays: {course:?}");
    assert!((3..=6).contains(course.last().unwrap()), "{course:?}");
}

#[test]
fn burst_into_an_empty_pool_is_served_and_leaves_nothing_behind() {
    const BURST: Load = Load(&[(1, 40.0, 40.0), (300, 0.0, 0.0)]);
    let settings = "min = 0\nmax = 8\nscale_down_after = \"1m\"\nidle_ttl = \"2m\"";
    let run = Simulation::new(settings).run(&BURST);
    assert!(run.queue.is_empty());
    let course: Vec<usize> = run.course.iter().map(|(_, workers)| *workers).collect();
    let peak = course.iter().position(|workers| *workers == 8).unwrap_or_else(|| panic!("{course:?}"));
    assert!(course[..=peak].is_sorted(), "{course:?}");
    // Four were busy when fewer than five were, and so it began to be quiet: those stay at first.
    assert_eq!(course[peak..], [8, 4, 0], "{course:?}");
}
