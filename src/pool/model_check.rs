//! Reservation against stop: no worker runs two queries, none that was told to stop gets one, and none is forgotten.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    time::Duration,
};

use shuttle::{future::block_on, thread};

use super::{
    ready_workers::{ReadyWorkers, Reservation},
    *,
};
use crate::{
    broker::next_events,
    config::Balance,
    model::{DeathCause, EventBody, FailureReason, Outcome, QueryId},
    state::{QueryState, WorkerState},
    worker::{
        PoolWorker, StopMode,
        model_check::{Life, Stage, assert_legal_history, query},
    },
};

/// The reservations and stops of each worker, as seen from outside. Its atomics are not modelled, so that they add no
/// points at which threads switch.
#[derive(Debug, Default)]
struct Seen {
    reserved: [AtomicBool; 2],
    stopped: [AtomicBool; 2],
}

impl Seen {
    fn at(worker: &PoolWorker) -> usize {
        usize::try_from(worker.id.0).expect("few workers") - 1
    }

    /// Reserves the next worker and gives it back. Says whether there was one.
    fn reserve(&self, ready: &Arc<ReadyWorkers>) -> bool {
        self.hold_briefly(|| ready.reserve_next(Balance::RoundRobin))
    }

    /// Reserves just this worker and gives it back. Says whether it was free.
    fn reserve_by_name(&self, ready: &Arc<ReadyWorkers>, worker: &Arc<PoolWorker>) -> bool {
        self.hold_briefly(|| ready.reserve(worker, Balance::RoundRobin))
    }

    fn hold_briefly(&self, reserve: impl FnOnce() -> Option<Reservation>) -> bool {
        let stopped_before = [0, 1].map(|at| self.stopped[at].load(SeqCst));
        let Some(reservation) = reserve() else { return false };
        let at = Self::at(&reservation.worker);
        assert!(!stopped_before[at], "a worker was reserved after its stop was recorded");
        assert!(!self.reserved[at].swap(true, SeqCst), "a worker was reserved twice");
        thread::yield_now();
        self.reserved[at].store(false, SeqCst);
        drop(reservation);
        true
    }

    /// Stops a worker if it is free. Says whether it was.
    fn evict(&self, worker: &PoolWorker) -> bool {
        let evicted = worker.stop_if_free(DeathCause::Evicted);
        if evicted {
            assert!(!self.reserved[Self::at(worker)].load(SeqCst), "a reserved worker was evicted");
            self.stopped[Self::at(worker)].store(true, SeqCst);
        }
        evicted
    }

    fn stop(&self, worker: &PoolWorker) {
        worker.request_stop(DeathCause::Evicted, StopMode::WhenDone);
        self.stopped[Self::at(worker)].store(true, SeqCst);
    }
}

#[test]
fn reservations_that_come_to_nothing_against_stop() {
    Stage::sample(|stage| {
        let ready = Arc::<ReadyWorkers>::default();
        let workers = [stage.worker(1), stage.worker(2)];
        for worker in &workers {
            ready.enqueue(worker, Balance::RoundRobin);
        }
        let seen = Arc::new(Seen::default());
        let reserving: Vec<_> = (0..3)
            .map(|_| {
                let (seen, ready) = (seen.clone(), ready.clone());
                thread::spawn(move || seen.reserve(&ready))
            })
            .collect();
        let idling = {
            let worker = workers[1].clone();
            thread::spawn(move || worker.mark_idle(Instant::now() + Duration::from_hours(1)))
        };
        seen.stop(&workers[0]);
        for reserving in reserving {
            reserving.join().unwrap();
        }
        idling.join().unwrap();

        // The one that was not stopped is in the rotation, once; the other falls out.
        let reservation = ready.reserve_next(Balance::RoundRobin).expect("a ready worker was lost from the rotation");
        assert_eq!(reservation.worker.id, workers[1].id);
        assert!(ready.reserve_next(Balance::RoundRobin).is_none(), "a worker was handed out twice");
        assert_eq!(workers[0].state(), WorkerState::Evicting);
        for worker in &workers {
            assert_legal_history(worker);
        }
    });
}

#[test]
fn reservations_by_turn_and_by_name_against_eviction() {
    Stage::sample(|stage| {
        let ready = Arc::<ReadyWorkers>::default();
        let workers = [stage.worker(1), stage.worker(2)];
        for worker in &workers {
            ready.enqueue(worker, Balance::RoundRobin);
        }
        let seen = Arc::new(Seen::default());
        let mut reserving: Vec<_> = (0..2)
            .map(|_| {
                let (seen, ready) = (seen.clone(), ready.clone());
                thread::spawn(move || seen.reserve(&ready))
            })
            .collect();
        reserving.push({
            let (seen, ready, worker) = (seen.clone(), ready.clone(), workers[1].clone());
            thread::spawn(move || seen.reserve_by_name(&ready, &worker))
        });
        let evicted = seen.evict(&workers[0]);
        for reserving in reserving {
            reserving.join().unwrap();
        }

        // A worker that was not evicted is in the rotation, once, however it was reserved.
        let left: Vec<_> = std::iter::from_fn(|| ready.reserve_next(Balance::RoundRobin)).collect();
        let mut left: Vec<_> = left.iter().map(|reservation| reservation.worker.id).collect();
        left.sort_unstable();
        let expected = workers.iter().map(|worker| worker.id).skip(usize::from(evicted));
        assert_eq!(left, expected.collect::<Vec<_>>(), "a ready worker was lost or handed out twice");
        for worker in &workers {
            assert_legal_history(worker);
        }
    });
}

/// A pool of two workers without processes, its supervisor played by the model.
#[derive(Clone)]
struct Play {
    parts: Arc<PoolParts>,
    workers: [Arc<PoolWorker>; 2],
}

const QUERIES: [&str; 2] = ["q1", "q2"];

impl Play {
    fn new(stage: &Stage, workers: [Arc<PoolWorker>; 2]) -> Self {
        let parts = Arc::new(PoolParts::new(PoolParams {
            config: stage.config.clone(),
            broker: stage.broker(),
            metrics: stage.metrics.clone(),
            launcher: PathBuf::new(),
            environment: |_| Vec::new(),
            reloader: None,
        }));
        parts.admission.mark_ready(2);
        for worker in &workers {
            parts.context.registry.add(worker.clone());
            parts.context.kinds.get(0).ready.enqueue(worker, Balance::RoundRobin);
        }
        Self { parts, workers }
    }

    fn lives(&self, stage: &Stage) -> [Life; 2] {
        [0, 1].map(|at| stage.life(&self.workers[at], self.parts.dispatcher.clone()))
    }

    fn submit(&self) -> Vec<thread::JoinHandle<()>> {
        let submit = |id| {
            let parts = self.parts.clone();
            thread::spawn(move || {
                block_on(parts.context.broker.submit(query(id))).unwrap();
                block_on(parts.dispatcher.dispatch(&parts.context.kinds.get(0)));
            })
        };
        QUERIES.into_iter().map(submit).collect()
    }

    /// True if the supervisor has been woken.
    fn is_woken(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let wake = pin!(self.parts.context.supervisor_wake.notified()).poll(&mut context);
        let arrival = pin!(self.parts.context.broker.wait_for_arrival()).poll(&mut context);
        wake.is_ready() || arrival != Poll::Pending
    }

    /// Does what the supervisor does when it is woken.
    fn supervise(&self) {
        block_on(self.parts.dispatcher.dispatch_all());
    }

    /// A supervisor that looks for wake-ups while others race, and so may be woken too early.
    fn supervisor(&self) -> thread::JoinHandle<()> {
        let play = self.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                thread::yield_now();
                if play.is_woken() {
                    play.supervise();
                }
            }
        })
    }

    /// Lets the drivers and the supervisor finish. No work may be left that woke neither.
    fn settle(&self, mut lives: [Life; 2]) -> [Life; 2] {
        for _ in 0..5 {
            let over = lives.iter().filter(|life| life.certificate().is_some()).count();
            lives = lives.map(Life::turn);
            let ended = lives.iter().filter(|life| life.certificate().is_some()).count() > over;
            if self.is_woken() || ended {
                self.supervise();
            }
        }
        lives
    }

    /// The outcome of a query, which must have ended once, in its first attempt.
    #[track_caller]
    fn end_of(&self, id: &str) -> Outcome {
        let id = QueryId::parse(id).unwrap();
        let info = block_on(self.parts.context.broker.get(&id)).unwrap();
        assert!(info.state.is_terminal(), "query {id} is left {}", info.state);
        assert_eq!(info.attempts, 1);
        let mut reader = block_on(self.parts.context.broker.read(&id, 0)).unwrap();
        let events = block_on(next_events(&mut reader)).unwrap();
        match &events[..] {
            [event] => match &event.body {
                EventBody::Ended(outcome) => outcome.clone(),
                other => panic!("no end: {other:?}"),
            },
            events => panic!("more than one end: {events:?}"),
        }
    }

    #[track_caller]
    fn assert_both_complete(&self) {
        for id in QUERIES {
            assert_eq!(self.end_of(id).state(), QueryState::Complete);
        }
        let processed: u64 = self.workers.iter().map(|worker| worker.snapshot().stats.queries_processed).sum();
        assert_eq!(processed, 2, "a query ran twice or not at all");
    }

    /// Those that live are in the rotation, once each.
    #[track_caller]
    fn assert_left(&self, lives: &[Life; 2]) {
        let reserved: Vec<_> =
            std::iter::from_fn(|| self.parts.context.kinds.get(0).ready.reserve_next(Balance::RoundRobin)).collect();
        let mut rotation: Vec<_> = reserved.iter().map(|reservation| reservation.worker.id).collect();
        rotation.sort_unstable();
        let alive = |at: &usize| lives[*at].certificate().is_none();
        let left: Vec<_> = (0..2).filter(alive).map(|at| self.workers[at].id).collect();
        assert_eq!(rotation, left, "a ready worker was lost or handed out twice");
        for worker in &self.workers {
            assert_legal_history(worker);
        }
    }
}

#[test]
fn dispatch_against_stop() {
    Stage::sample(|stage| {
        let play = Play::new(stage, [stage.worker(1), stage.worker(2)]);
        let mut racing = play.submit();
        racing.push(play.supervisor());
        let living = play.lives(stage).map(|life| thread::spawn(move || life.turn().turn()));
        play.workers[0].request_stop(DeathCause::Evicted, StopMode::WhenDone);
        for racer in racing {
            racer.join().unwrap();
        }
        let lives = play.settle(living.map(|living| living.join().unwrap()));

        assert_eq!(lives[0].certificate().map(|certificate| certificate.cause), Some(DeathCause::Evicted));
        play.assert_both_complete();
        play.assert_left(&lives);
    });
}

#[test]
fn dispatch_against_a_worker_that_does_not_listen() {
    Stage::sample(|stage| {
        let play = Play::new(stage, [stage.deaf_worker(1), stage.worker(2)]);
        let mut racing = play.submit();
        racing.push(play.supervisor());
        let living = play.lives(stage).map(|life| thread::spawn(move || life.turn().turn()));
        for racer in racing {
            racer.join().unwrap();
        }
        let lives = play.settle(living.map(|living| living.join().unwrap()));

        // It is found out when it is tried, which it need not be if the other is fast.
        assert!(lives[0].certificate().is_none_or(|certificate| certificate.cause == DeathCause::Crash));
        assert!(lives[1].certificate().is_none());
        play.assert_both_complete();
        play.assert_left(&lives);
    });
}

#[test]
fn dispatch_against_crash_and_stop() {
    Stage::sample(|stage| {
        let play = Play::new(stage, [stage.worker(1), stage.worker(2)]);
        let mut racing = play.submit();
        racing.push(play.supervisor());
        let [first, second] = play.lives(stage);
        let crashing = thread::spawn(move || first.turn().crash());
        let living = thread::spawn(move || second.turn().turn());
        play.workers[0].request_stop(DeathCause::Evicted, StopMode::WhenDone);
        for racer in racing {
            racer.join().unwrap();
        }
        let lives = play.settle([crashing.join().unwrap(), living.join().unwrap()]);

        let cause = lives[0].certificate().expect("the first worker is gone").cause;
        for id in QUERIES {
            match play.end_of(id) {
                Outcome::Complete { .. } => {}
                Outcome::Error(failure) => {
                    let blamed =
                        failure.certificate.as_ref().map(|certificate| (certificate.worker, certificate.cause));
                    assert_eq!(blamed, Some((play.workers[0].id, cause)), "{failure:?}");
                    let reason = if cause.is_failure() { FailureReason::WorkerDied } else { FailureReason::Shutdown };
                    assert_eq!(failure.reason, reason);
                }
                other => panic!("{other:?}"),
            }
        }
        play.assert_left(&lives);
    });
}
