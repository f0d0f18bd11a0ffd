//! Crash against graceful stop; and the stage on which models let workers live without a process.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use shuttle::{future::block_on, thread};
use tempfile::TempDir;
use tokio::{
    net::{UnixStream, unix::OwnedWriteHalf},
    runtime,
};

use super::{
    Conclusion, Host, PoolWorker, ReadyInfo, RuntimeDir, SpawnContext, Spawner, StopMode, WorkerSpec, driver::Driver,
    end_reason::EndReason, outbox::Outbox, running::FinalFrame,
};
use crate::{
    broker::{Broker, Claim, ClaimScope, Claimant, Lease, MemoryLimits, NewQuery, Output},
    config::{Config, ConfigSource, Overflow, Overrides},
    metrics::{KindMetrics, Metrics},
    model::{DeathCause, DeathCertificate, QueryId, QuerySpec, WorkerId},
    model_check::sample,
    protocol::JsonText,
    state::{WorkerState, transition},
};

/// The parts that all runs of a model share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub config: Config,
    pub metrics: Arc<Metrics>,
    kind: Arc<KindMetrics>,
    context: SpawnContext,
    /// Nobody reads from the other end, and need not.
    stream: Arc<OwnedWriteHalf>,
    _peer: UnixStream,
    /// The other end of this one is closed.
    broken: Arc<OwnedWriteHalf>,
    _sockets: TempDir,
}

impl Stage {
    /// Samples the schedules of `model`.
    pub(crate) fn sample(model: impl Fn(&Arc<Self>) + Send + Sync + Clone + 'static) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stage = Arc::new(runtime.block_on(Self::new()));
        let _context = runtime.enter();
        sample(move || model(&stage));
    }

    async fn new() -> Self {
        let text = "[kinds.k]\ncommand = [\"w\"]\n".to_owned();
        let source = ConfigSource::Text { name: "model".to_owned(), text, base_dir: PathBuf::new() };
        let metrics = Arc::new(Metrics::new());
        let sockets = tempfile::tempdir().unwrap();
        let context = SpawnContext {
            spawner: Spawner::new("/bin/true".into()).unwrap(),
            runtime_dir: Arc::new(RuntimeDir::create(sockets.path()).unwrap()),
            environment: Arc::default(),
        };
        let (stream, peer) = UnixStream::pair().unwrap();
        let (broken, closed) = UnixStream::pair().unwrap();
        broken.writable().await.unwrap();
        drop(closed);
        Self {
            config: Config::load(source, [], &Overrides::default()).unwrap(),
            kind: metrics.kind("k"),
            metrics,
            context,
            stream: stream.into_split().1.into(),
            _peer: peer,
            broken: broken.into_split().1.into(),
            _sockets: sockets,
        }
    }

    pub(crate) fn broker(&self) -> Broker {
        let limits = MemoryLimits {
            max_queries: 10,
            max_waiting_bytes: usize::MAX,
            max_events: 10,
            max_bytes: 1_000,
            overflow: Overflow::Gap,
            max_stall: Duration::ZERO,
            retention: Duration::from_hours(1),
            max_ended: 10,
            max_ended_bytes: usize::MAX,
            max_dead: 10,
            max_dead_bytes: usize::MAX,
            max_dead_age: Duration::from_hours(1),
            aging: None,
            max_queries_per_owner: None,
            max_running_per_owner: None,
        };
        Broker::memory(limits, self.metrics.query.clone())
    }

    /// A worker that is ready for its first query.
    pub(crate) fn worker(&self, id: u64) -> Arc<PoolWorker> {
        self.connected(id, &self.stream)
    }

    /// A worker that is ready, but will not get what is sent to it.
    pub(crate) fn deaf_worker(&self, id: u64) -> Arc<PoolWorker> {
        self.connected(id, &self.broken)
    }

    fn connected(&self, id: u64, stream: &Arc<OwnedWriteHalf>) -> Arc<PoolWorker> {
        let worker = PoolWorker::new(WorkerSpec {
            id: WorkerId(id),
            slot: 0,
            kind: Arc::new(self.config.kinds[0].clone()),
            key: None,
            metrics: self.kind.clone(),
            observer: Arc::new(()),
        });
        worker.set_outbox(Outbox::new(stream.clone()));
        assert!(worker.step(WorkerState::Spawning, WorkerState::Loading, "connected"));
        assert!(worker.mark_ready(ReadyInfo::default()));
        Arc::new(worker)
    }

    pub(crate) fn life(&self, worker: &Arc<PoolWorker>, host: Arc<dyn Host>) -> Life {
        Life(Stand::InService(Box::new(Driver::new(worker.clone(), host, self.context.clone()))))
    }
}

pub(crate) fn query(id: &str) -> NewQuery {
    let spec = QuerySpec {
        kind: "k".into(),
        query_type: None,
        payload: JsonText::parse("{}".to_owned()).unwrap(),
        priority: 0,
        key: None,
        owner: None,
        queue_timeout: None,
        options: None,
        reject_if_busy: false,
    };
    NewQuery { id: QueryId::parse(id).unwrap(), spec, deadline: None, abandon_after: None, lane: None, trace: None }
}

/// A worker's driver, one step at a time.
#[derive(Debug)]
pub(crate) struct Life(Stand);

#[derive(Debug)]
enum Stand {
    InService(Box<Driver>),
    Over(Arc<DeathCertificate>),
}

impl Life {
    /// One turn of the driver between two waits: it acts on a stop, takes a query over, and here completes it at once.
    pub(crate) fn turn(self) -> Self {
        let Stand::InService(mut driver) = self.0 else { return self };
        if let Some(end) = driver.check_stop_request() {
            return Self::over(*driver, end);
        }
        if driver.worker.has_write_failed() {
            return Self(Stand::InService(driver)).crash();
        }
        if let Some(running) = &mut driver.running {
            running.final_frame = Some(FinalFrame::Complete(JsonText::parse("1".to_owned()).unwrap()));
            block_on(driver.conclude_if_final());
        }
        Self(Stand::InService(driver))
    }

    /// The process has ended without a last word.
    pub(crate) fn crash(self) -> Self {
        let Stand::InService(driver) = self.0 else { return self };
        let request = driver.stop_taking_queries();
        let end = driver.end_by_exit(request, None);
        Self::over(*driver, end)
    }

    fn over(driver: Driver, end: EndReason) -> Self {
        Self(Stand::Over(block_on(driver.finish(end, Instant::now()))))
    }

    pub(crate) fn certificate(&self) -> Option<&Arc<DeathCertificate>> {
        match &self.0 {
            Stand::InService(_) => None,
            Stand::Over(certificate) => Some(certificate),
        }
    }
}

/// Every move is legal and starts where the one before it ended, and nothing leads back from a stop or a failure.
#[track_caller]
pub(crate) fn assert_legal_history(worker: &PoolWorker) {
    let mut state = WorkerState::Spawning;
    let mut leaving = false;
    for step in worker.history() {
        assert_eq!(step.from, state, "the chain has a gap");
        assert_eq!(transition(step.from, step.to), Ok(()));
        leaving |= matches!(step.to, WorkerState::Evicting | WorkerState::Failed);
        assert!(!leaving || !step.to.is_healthy(), "back in service: {:?}", worker.history());
        state = step.to;
    }
    assert_eq!(worker.state(), state);
}

/// A pool that counts what it is told and gives nobody anything to do.
#[derive(Debug, Default)]
struct Bystander {
    concluded: AtomicUsize,
    left: AtomicBool,
}

#[async_trait]
impl Host for Bystander {
    fn session(&self, _: &Arc<PoolWorker>, _: &str) {}

    async fn ready(&self, worker: &Arc<PoolWorker>) {
        worker.if_available(|| assert!(!self.left.load(SeqCst), "a worker that was told to stop is offered again"));
    }

    async fn conclude(&self, _: &Arc<PoolWorker>, lease: Lease, _: Vec<Output>, _: Conclusion) {
        self.concluded.fetch_add(1, SeqCst);
        lease.release().await;
    }
}

fn claim(broker: &Broker) -> Claim {
    block_on(broker.submit(query("q"))).unwrap();
    block_on(broker.claim(Claimant {
        kind: "k",
        worker: WorkerId(1),
        scope: ClaimScope::Open,
        takes_lane: false,
        notify: None,
    }))
    .unwrap()
    .expect("the query waits")
}

/// The time of a requested stop, as others saw it. Not modelled, so that reading it changes no schedule.
#[derive(Debug, Default)]
struct Stop {
    begun: AtomicBool,
    recorded: AtomicBool,
}

impl Stop {
    fn request(&self, worker: &PoolWorker, host: &Bystander) {
        self.begun.store(true, SeqCst);
        worker.request_stop(DeathCause::Evicted, StopMode::WhenDone);
        host.left.store(true, SeqCst);
        self.recorded.store(true, SeqCst);
    }
}

/// Lets the worker crash, and checks that the cause on the certificate is the one that came first.
#[track_caller]
/// A worker that was marked failed while nobody had asked for its stop has crashed, whatever was asked for later.
fn assert_first_cause(worker: &PoolWorker, certificate: &DeathCertificate) {
    let stopped = worker.history().iter().any(|step| step.to == WorkerState::Evicting);
    assert!(stopped || certificate.cause == DeathCause::Crash, "failed first, yet {}", certificate.cause);
}

fn crash(life: Life, stop: &Stop) -> Arc<DeathCertificate> {
    let recorded_before = stop.recorded.load(SeqCst);
    let life = life.crash();
    let begun_after = !stop.begun.load(SeqCst);
    let certificate = life.certificate().expect("a crash ends a life").clone();
    match certificate.cause {
        DeathCause::Evicted => assert!(!begun_after, "evicted before anyone asked for it"),
        DeathCause::Crash => assert!(!recorded_before, "the stop was recorded first"),
        other => panic!("nobody gave cause for {other}"),
    }
    certificate
}

#[test]
fn crash_against_graceful_stop_of_a_worker_between_queries() {
    Stage::sample(|stage| {
        let (worker, host, stop) = (stage.worker(1), Arc::new(Bystander::default()), Arc::new(Stop::default()));
        let life = stage.life(&worker, host.clone());
        let crashing = {
            let stop = stop.clone();
            thread::spawn(move || crash(life, &stop))
        };
        let reserving = {
            let worker = worker.clone();
            thread::spawn(move || worker.reserve(Instant::now()) && worker.unreserve())
        };
        stop.request(&worker, &host);
        assert!(!worker.reserve(Instant::now()), "a worker was reserved after its stop was recorded");
        let certificate = crashing.join().unwrap();
        reserving.join().unwrap();

        assert_legal_history(&worker);
        assert_first_cause(&worker, &certificate);
        assert_eq!(worker.state(), WorkerState::Dead);
    });
}

#[test]
fn crash_against_graceful_stop_and_the_end_of_a_query() {
    Stage::sample(|stage| {
        let (worker, host, stop) = (stage.worker(1), Arc::new(Bystander::default()), Arc::new(Stop::default()));
        let broker = stage.broker();
        let life = stage.life(&worker, host.clone());
        assert!(worker.reserve(Instant::now()));
        worker.start_query(claim(&broker), Instant::now()).unwrap();
        let living = {
            let stop = stop.clone();
            thread::spawn(move || match life.turn() {
                Life(Stand::Over(certificate)) => certificate,
                life => crash(life, &stop),
            })
        };
        stop.request(&worker, &host);
        living.join().unwrap();

        assert_legal_history(&worker);
        assert_eq!(worker.state(), WorkerState::Dead);
        assert_eq!(host.concluded.load(SeqCst), 1);
        assert_eq!(worker.snapshot().query, None);
    });
}

#[test]
fn crash_against_graceful_stop_and_a_query_on_its_way() {
    Stage::sample(|stage| {
        let (worker, host, stop) = (stage.worker(1), Arc::new(Bystander::default()), Arc::new(Stop::default()));
        let broker = stage.broker();
        let life = stage.life(&worker, host.clone());
        assert!(worker.reserve(Instant::now()));
        let claim = claim(&broker);
        let starting = {
            let worker = worker.clone();
            thread::spawn(move || {
                worker.start_query(claim, Instant::now()).map_err(|lease| block_on(lease.release())).is_ok()
            })
        };
        let crashing = {
            let stop = stop.clone();
            thread::spawn(move || crash(life, &stop))
        };
        stop.request(&worker, &host);
        let started = starting.join().unwrap();
        let certificate = crashing.join().unwrap();

        assert_legal_history(&worker);
        assert_first_cause(&worker, &certificate);
        // Either the driver had the query or whoever claimed it still has it: never both, never neither.
        assert_eq!(host.concluded.load(SeqCst), usize::from(started));
        assert_eq!(broker.waiting_count("k"), 1, "the query was lost");
        assert_eq!(certificate.query.is_some(), started);
    });
}
