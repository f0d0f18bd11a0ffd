//! Workers that are killed, stopped and corrupted under load, one after the other: nothing is lost, nothing is left.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use remuda::api::proto::{QueryState, WorkerState, event::Body};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use crate::harness::{
    Client, Seed, Server, TestEvent, end_of, eventually_async, fake_kind, group_of, is_stopped, query,
};

const CLIENTS: usize = 64;
const WORKERS: usize = 8;
const DISTURBANCE_INTERVAL: Duration = Duration::from_millis(100);
const WARM_UP_QUERIES: usize = 20;

/// Workers that beat, so that a stopped one is found; and limits that bad luck does not reach, since the chaos also hits
/// workers that have just been started, and queries that it has hit before.
fn server() -> Server {
    let settings = format!(
        r#"
        min = {WORKERS}
        max = {WORKERS}
        heartbeat_warning = "500ms"
        heartbeat_timeout = "1s"
        term_grace = "200ms"
        max_line_bytes = "4KiB"
        restart_backoff = "10ms"
        restart_backoff_max = "50ms"
        circuit_failures = 1000
        "#
    );
    let start = r#"["connect", {"ready": {"heartbeat": true}}, {"beat_ms": 100}]"#;
    let kind = fake_kind("k", &["--start", start], &settings);
    // Ended queries fill their place during the warm-up, so that memory that grows later is a leak.
    let rest = "[recovery]\nstrategy = \"retry\"\nattempts = 20\n[results]\nmax_ended = 500\n";
    Server::start(&format!("{rest}{kind}"))
}

fn duration() -> Duration {
    let seconds = env::var("REMUDA_CHAOS_SECONDS").ok().map(|text| text.parse().expect("a whole number of seconds"));
    Duration::from_secs(seconds.unwrap_or(6))
}

/// Counts of a client's queries.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    queries: usize,
    retries: usize,
    most_attempts: u32,
}

impl Seen {
    fn and(self, other: Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            retries: self.retries + other.retries,
            most_attempts: self.most_attempts.max(other.most_attempts),
        }
    }
}

/// Runs a query that must end with its own answer, whatever happens to its workers, and whatever its first attempt
/// does in place of answering.
async fn ask(client: &mut Client, nonce: &str, first: Option<Value>) -> Seen {
    let mut steps = vec![json!({"message": nonce}), json!({"sleep_ms": fastrand::u8(1..20)}), json!("nonce")];
    if let Some(first) = first {
        steps.insert(0, json!({"until_attempt": [1, first]}));
    }
    let ended = client.execute(query(&json!({"nonce": nonce, "steps": steps}))).await;
    assert_eq!(end_of(&ended.events), QueryState::Complete, "{nonce} was lost: {ended:?}");
    assert!(ended.status.is_none(), "{ended:?}");
    let result = ended.result();
    assert_eq!(result["nonce"], json!(nonce), "an answer went to the wrong query");
    assert_eq!(result["concurrent"], json!(1), "a worker had two queries at once");
    for event in ended.test_events() {
        let TestEvent::Message(message) = event else { continue };
        assert_eq!(message, json!(nonce), "a message went to the wrong query");
    }
    let retries = ended.events.iter().filter(|event| matches!(event.body, Some(Body::Retrying(_)))).count();
    let attempts = ended.events.last().expect("the final event").attempt;
    assert_eq!(attempts as usize, retries + 1, "{ended:?}");
    Seen { queries: 1, retries, most_attempts: attempts }
}

/// Asks one question after the other, on a connection of its own.
async fn run_client(mut client: Client, number: usize, round: &'static str, enough: impl Fn(usize) -> bool) -> Seen {
    let mut seen = Seen::default();
    while !enough(seen.queries) {
        let nonce = format!("{round}/{number}/{}", seen.queries);
        seen = seen.and(ask(&mut client, &nonce, None).await);
    }
    seen
}

#[derive(Debug, Default)]
struct Disturbances {
    kills: usize,
    stops: usize,
    corruptions: usize,
    /// Every process that ever was a worker.
    pids: BTreeSet<u32>,
}

/// Ways in which a worker can go wrong in the middle of a query.
fn corruption(rng: &mut Rng) -> Value {
    let ways = [
        json!([{"raw": "certainly not JSON"}, "hang"]),
        json!([{"raw_hex": "7b22ff227d0a"}, "hang"]),
        json!([{"long_line": 5_000}, "hang"]),
        json!(["unknown_type", "hang"]),
        json!(["second_ready", "hang"]),
        json!(["half_line", {"exit": 4}]),
        json!(["half_line", "close_socket", "hang_hard"]),
        json!(["close_socket", "hang_hard"]),
        json!(["grandchild", {"exit": 0}]),
        json!(["ignore_term", {"raw": "[]"}, "hang_hard"]),
    ];
    rng.choice(ways).expect("there are some")
}

/// Sends a signal; returns 0 if the process has ended already.
fn send(pid: u32, signal: Signal) -> usize {
    usize::from(kill(Pid::from_raw(pid.cast_signed()), signal).is_ok())
}

/// Does something bad to one worker after the other, as chance has it.
async fn disturb_workers(server: &Server, client: &Client, rng: &mut Rng, until: Instant) -> (Disturbances, Seen) {
    let mut disturbances = Disturbances::default();
    let mut corrupting = JoinSet::new();
    let mut interval = tokio::time::interval(DISTURBANCE_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        interval.tick().await;
        let workers = server.worker_pids();
        disturbances.pids.extend(&workers);
        let Some(victim) = rng.choice(workers) else { continue };
        match rng.u8(..3) {
            0 => disturbances.kills += send(victim, Signal::SIGKILL),
            1 => disturbances.stops += send(victim, Signal::SIGSTOP),
            _ => {
                disturbances.corruptions += 1;
                let (mut client, nonce) = (client.clone(), format!("corrupting/{}", disturbances.corruptions));
                // The worker that gets it first goes wrong; the query is to be answered all the same.
                let first = corruption(rng);
                corrupting.spawn(async move { ask(&mut client, &nonce, Some(first)).await });
            }
        }
    }
    let seen = corrupting.join_all().await.into_iter().fold(Seen::default(), Seen::and);
    (disturbances, seen)
}

/// Descriptors and memory of the server.
#[derive(Debug)]
struct Resources {
    descriptors: usize,
    resident_kib: usize,
}

impl Resources {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a live process has memory");
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().unwrap();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self { descriptors, resident_kib }
    }
}

/// Waits until the pool is at its size and all workers in it are ready, none of them stopped. Returns the processes.
async fn full_pool(server: &Server, client: &Client) -> BTreeSet<u32> {
    let ready = eventually_async("a full pool of ready workers", || {
        let mut client = client.clone();
        async move {
            let workers = client.workers().await;
            let ready = workers.iter().filter(|worker| worker.state() == WorkerState::Ready);
            let ready: BTreeSet<u32> = ready.map(|worker| worker.pid).collect();
            // A stopped worker is ready until its heartbeats are missed.
            let is_full =
                ready.len() == WORKERS && workers.len() == WORKERS && !ready.iter().any(|pid| is_stopped(*pid));
            is_full.then_some(ready)
        }
    });
    let ready = ready.await;
    server.until_ready("k", WORKERS);
    ready
}

/// The workers' directories with their sockets.
fn sockets(server: &Server) -> usize {
    let dirs = server.leftovers();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let entries = fs::read_dir(&dirs[0]).unwrap().flatten();
    entries.filter(|entry| entry.file_name() != "lock").count()
}

async fn assert_nothing_left(server: &Server, before: &Resources, sockets_before: usize, past: &BTreeSet<u32>) {
    let after = eventually_async("the descriptors to be given back", || async {
        let now = Resources::of(server.pid());
        (now.descriptors.abs_diff(before.descriptors) <= 2).then_some(now)
    });
    let after = after.await;
    let most = before.resident_kib * 3 / 2 + 10 * 1024;
    assert!(after.resident_kib < most, "memory grew from {before:?} to {after:?}");
    assert_eq!(sockets(server), sockets_before, "a dead worker's socket is still there");
    for pid in past {
        assert_eq!(group_of(*pid), Vec::<u32>::new(), "a process of worker process {pid} outlived it");
    }
    for state in ["pending", "processing", "streaming", "retry_pending"] {
        let count = server.metric(&format!(r#"remuda_queries{{kind="k",state="{state}"}}"#));
        assert_eq!(count as usize, 0, "{state} queries are counted, and there are none");
    }
}

/// The server has counted what the clients have seen.
fn assert_counts(server: &Server, seen: Seen) {
    let outcome = |name| {
        server.metric(&format!(r#"remuda_query_results_total{{kind="k",outcome="{name}",type="none"}}"#)) as usize
    };
    assert_eq!(outcome("complete"), seen.queries);
    assert_eq!(["error", "cancelled", "rejected"].map(outcome), [0, 0, 0]);
    let retries =
        |reason| server.metric(&format!(r#"remuda_query_retries_total{{kind="k",reason="{reason}"}}"#)) as usize;
    assert_eq!(retries("worker_died") + retries("reported"), seen.retries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_not_lost_while_workers_are_killed_stopped_and_corrupted() {
    let seed = Seed::pick();
    let server = server();
    let main = server.client().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(server.client().await);
    }
    let numbered = || clients.iter().cloned().enumerate();
    let warm_up: JoinSet<Seen> = numbered()
        .map(|(number, client)| run_client(client, number, "warm-up", |asked| asked == WARM_UP_QUERIES))
        .collect();
    let warm_up = warm_up.join_all().await.into_iter().fold(Seen::default(), Seen::and);
    full_pool(&server, &main).await;
    let (before, sockets_before) = (Resources::of(server.pid()), sockets(&server));

    let over = Arc::new(AtomicBool::new(false));
    let asking: JoinSet<Seen> = numbered()
        .map(|(number, client)| {
            let over = over.clone();
            run_client(client, number, "chaos", move |_| over.load(Relaxed))
        })
        .collect();
    let mut rng = seed.rng(0);
    let (disturbances, corrupted) = disturb_workers(&server, &main, &mut rng, Instant::now() + duration()).await;
    over.store(true, Relaxed);
    let total = asking.join_all().await.into_iter().fold(corrupted, Seen::and);

    let present = full_pool(&server, &main).await;
    let past: BTreeSet<u32> = disturbances.pids.difference(&present).copied().collect();
    assert_nothing_left(&server, &before, sockets_before, &past).await;
    assert_counts(&server, total.and(warm_up));
    let after = Resources::of(server.pid());
    let _ = writeln!(
        std::io::stderr(),
        "{:?} of chaos: {} queries, {} retries, at most {} attempts; {} kills, {} stops, {} corruptions; \
         descriptors {} -> {}, memory {} -> {} KiB",
        duration(),
        total.queries,
        total.retries,
        total.most_attempts,
        disturbances.kills,
        disturbances.stops,
        disturbances.corruptions,
        before.descriptors,
        after.descriptors,
        before.resident_kib,
        after.resident_kib,
    );
    assert!(server.stop_cleanly().success());
}
