//! The stop of the server, step by step: not serving, a pause, no new queries, the end of the old ones, and never too late.

use std::{
    io::{ErrorKind, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use remuda::api::proto::{
    ExecuteRequest, StreamResultsRequest, WatchEventsRequest, worker_pool_client::WorkerPoolClient,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use tonic::{Code, Streaming, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::harness::{DEADLINE, Gate, Server, TestEvent, alive, eventually, fake_kind, query, raw, was_cut_off};

/// Added to the bound of a stop, which is the sum of the configured times: a busy machine takes a while to deliver the signal, to
/// run the server and to let the test see that it has ended.
const BUSY_MACHINE: Duration = Duration::from_secs(1);

fn server(pool: &str, settings: &str) -> Server {
    Server::start(&format!("[pool]\n{pool}\n{}", fake_kind("k", &[], settings)))
}

async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap()
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

/// The next status that a watcher of the standard health service gets; `None` at the end.
async fn told(watch: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    let next = timeout(DEADLINE, watch.message()).await.expect("a watcher is told in time").unwrap();
    next.map(|response| response.status())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_reports_not_serving_and_still_serves_new_calls() {
    let server = server("drain_pause = \"2s\"", "min = 1\nmax = 2");
    server.until_ready("k", 1);
    let mut health = HealthClient::new(channel(&server).await);
    let mut watches = Vec::new();
    for service in ["", "k"] {
        let mut watch = health.watch(about(service)).await.unwrap().into_inner();
        assert_eq!(told(&mut watch).await, Some(ServingStatus::Serving));
        watches.push(watch);
    }
    let mut client = server.client().await;
    let gate = Gate::closed();
    let running = client.begin(gate.query());
    server.until_busy("k", 1);
    let begun = Instant::now();
    server.signal(Signal::SIGTERM);
    for watch in &mut watches {
        assert_eq!(told(watch).await, Some(ServingStatus::NotServing));
    }
    for service in ["", "k"] {
        let status = health.check(about(service)).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::NotServing, "{service:?}");
    }
    let (code, body) = server.get("/readyz");
    assert!(code == 503 && body.contains("the server is about to stop"), "{code} {body}");
    assert_eq!(server.get("/livez").0, 200);
    assert!(!client.health().await.serving);
    // Whoever has not heard yet is served, until the pause is over.
    let mut count = 0;
    let refused = loop {
        match client.execute_as("", query(&json!(count))).await {
            Ok(ended) => assert_eq!(ended.result(), json!({"echo": count})),
            // A call that is on its way when the connection closes ends as cancelled.
            Err(refused) if was_cut_off(&refused) => continue,
            Err(refused) => break refused,
        }
        count += 1;
        assert!(begun.elapsed() < DEADLINE, "the pause does not end");
    };
    assert!(count > 0, "nobody was served during the pause");
    assert!(begun.elapsed() >= Duration::from_secs(2), "the pause was too short: {:?}", begun.elapsed());
    assert_eq!(refused.code(), Code::Unavailable);
    assert_refuses_connections(&server);
    let cut_off =
        server.metric(r#"remuda_grpc_requests_total{code="CANCELLED",method="remuda.v1.WorkerPool/Execute"}"#);
    assert!(cut_off == 0.0, "a call that ended as cancelled was never the server's");
    gate.open();
    assert!(matches!(running.await.unwrap().last(), TestEvent::Complete(_)));
    for watch in &mut watches {
        assert_eq!(told(watch).await, None, "a watcher's call ends with the server");
    }
    let mut server = server;
    assert_eq!(server.wait().code(), Some(0));
}

/// Clients go elsewhere at once if the server does not listen.
#[track_caller]
fn assert_refuses_connections(server: &Server) {
    let refused = eventually("the listener to close", || std::net::TcpStream::connect(&server.grpc).err());
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_comes_when_the_drain_begins_and_open_calls_go_on() {
    let mut server = server("drain_timeout = \"60s\"", "min = 1\nmax = 1");
    server.until_ready("k", 1);
    let (client, gate) = (server.client().await, Gate::closed());
    let running = client.begin(gate.query());
    server.until_busy("k", 1);
    let tcp = tokio::net::TcpStream::connect(&server.grpc).await.unwrap();
    let (idle, connection) = h2::client::handshake(tcp).await.unwrap();
    let connection = tokio::spawn(connection);
    let idle = idle.ready().await.unwrap();
    server.signal(Signal::SIGTERM);
    // A connection without calls is closed at once, and takes no call after its GOAWAY.
    let _ = timeout(DEADLINE, connection).await.expect("an idle connection ends when the drain begins").unwrap();
    assert!(idle.ready().await.is_err());
    assert_refuses_connections(&server);
    assert!(!running.is_finished(), "the open call goes on");
    gate.open();
    assert!(matches!(running.await.unwrap().last(), TestEvent::Complete(_)));
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_after_the_last_goaway_do_not_reset_the_connection() {
    let server = server("drain_timeout = \"60s\"", "min = 1\nmax = 1");
    server.until_ready("k", 1);
    let (client, gate) = (server.client().await, Gate::closed());
    let running = client.begin(gate.query());
    server.until_busy("k", 1);
    let stream = raw::connect(&server.grpc, &[]);
    server.signal(Signal::SIGTERM);
    let frames = std::iter::from_fn(|| raw::next_frame(&stream));
    for ping in frames.filter(|frame| frame.kind == raw::PING && frame.flags & raw::ACK == 0) {
        (&stream).write_all(&raw::frame(raw::PING, raw::ACK, 0, &ping.payload)).unwrap();
    }
    // The server has closed its side. A reset would fail the second write.
    for _ in 0..2 {
        (&stream).write_all(&raw::frame(raw::PING, 0, 0, &[0; 8])).expect("the connection is not reset");
    }
    gate.open();
    assert!(matches!(running.await.unwrap().last(), TestEvent::Complete(_)));
}

/// Sends SIGTERM twice, the second time as one that counts, and gives the exit code.
fn stop_twice(server: &mut Server) -> Option<i32> {
    server.signal(Signal::SIGTERM);
    eventually("the pause to begin", || (server.get("/readyz").0 == 503).then_some(()));
    // A signal that comes twice at once counts once, so it is repeated until it counts.
    let status = eventually("the server to end", || {
        server.signal(Signal::SIGTERM);
        server.ended()
    });
    status.code()
}

#[tokio::test]
async fn second_signal_ends_the_pause_and_everything_else() {
    let settings = "min = 1\nmax = 1\ncancel_grace = \"60s\"\nterm_grace = \"60s\"";
    let mut idle = server("drain_pause = \"60s\"", settings);
    idle.until_ready("k", 1);
    assert_eq!(stop_twice(&mut idle), Some(0), "nothing ran, so nothing was lost");
    let mut busy = server("drain_pause = \"60s\"\ndrain_timeout = \"60s\"", settings);
    let mut client = busy.client().await;
    client.submit(query(&json!({"steps": ["ignore_term", {"message": 1}, "hang_hard"]}))).await.unwrap();
    busy.until_busy("k", 1);
    let workers = busy.worker_pids();
    assert_eq!(stop_twice(&mut busy), Some(1), "a query was cut short");
    assert!(workers.iter().all(|pid| !alive(*pid)));
}

/// A stream that is never read beyond what was accepted, and whose worker has more to say than all buffers hold.
async fn stalled_reader(server: &Server) -> impl Sized + use<> {
    let endpoint = Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let mut client = WorkerPoolClient::new(endpoint.connect().await.unwrap());
    let flood = query(&json!({"steps": [{"messages": {"count": 20_000, "size": 1_024}}, "hang"]}));
    let request = ExecuteRequest { query_id: String::new(), query: Some(flood) };
    let mut stream = client.execute(request).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("what was accepted");
    (client, stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_and_silent_clients_and_a_stubborn_worker_together_do_not_hold_up_the_stop() {
    let pool =
        "drain_pause = \"300ms\"\ndrain_timeout = \"1s\"\n[results]\noverflow = \"stall\"\nmax_bytes = \"64KiB\"";
    let mut server = server(pool, "min = 3\nmax = 3\ncancel_grace = \"500ms\"\nterm_grace = \"1s\"");
    server.until_ready("k", 3);
    let _stalled = stalled_reader(&server).await;
    let mut client = server.client().await;
    let stubborn = client.submit(query(&json!({"steps": ["ignore_term", {"message": 1}, "hang_hard"]}))).await.unwrap();
    server.until_busy("k", 2);
    // Calls that nobody ends: a reader of a query that does not end, watchers that do not read.
    let follow = StreamResultsRequest { query_id: stubborn, from_sequence: 0 };
    let _reader = client.pool.stream_results(follow).await.unwrap();
    let _watcher = client.admin.watch_events(WatchEventsRequest::default()).await.unwrap();
    let _health = HealthClient::new(channel(&server).await).watch(about("")).await.unwrap();
    // Connections that say nothing, on both doors, one of them in the midst of a request.
    let _silent = [&server.grpc, &server.grpc, &server.http].map(|door| std::net::TcpStream::connect(door).unwrap());
    let mut half = std::net::TcpStream::connect(&server.http).unwrap();
    half.write_all(b"GET /met").unwrap();
    let workers = server.worker_pids();
    server.signal(Signal::SIGTERM);
    let bound = Duration::from_millis(300 + 1_000 + 500 + 1_000) + BUSY_MACHINE;
    assert_eq!(server.wait_within(bound).code(), Some(1), "two queries were cut short");
    assert!(workers.iter().all(|pid| !alive(*pid)));
    assert_eq!(server.leftovers().len(), 0);
}

/// Outcomes of the queries of one client until it was refused.
#[derive(Debug, Default)]
struct Tally {
    completed: usize,
    refused: Vec<(Code, String)>,
}

/// Runs one query after the other until one is refused.
async fn run_until_refused(server: &str, started: Arc<Semaphore>) -> Tally {
    let mut client = crate::harness::Client::connect(server).await;
    let mut tally = Tally::default();
    loop {
        let payload: Value = json!({"steps": [{"message": 1}, {"sleep_ms": 3}, {"complete": tally.completed}]});
        match client.execute_as("", query(&payload)).await {
            Ok(ended) => {
                assert!(!ended.query_id.is_empty(), "accepted, but not told so: {ended:?}");
                assert_eq!(ended.result(), json!(tally.completed), "{ended:?}");
                tally.completed += 1;
                started.add_permits(1);
            }
            Err(status) if was_cut_off(&status) => {}
            Err(status) => {
                tally.refused.push((status.code(), status.message().to_owned()));
                return tally;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_queries_are_not_lost_by_a_stop_under_the_load_of_64_clients() {
    let mut server = server("drain_pause = \"200ms\"\nmax_workers = 8", "min = 8\nmax = 8");
    server.until_ready("k", 8);
    // As long as this one runs the server is there, to tell everyone itself.
    let (client, gate) = (server.client().await, Gate::closed());
    let last = client.begin(gate.query());
    server.until_busy("k", 1);
    let started = Arc::new(Semaphore::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let (address, started) = (server.grpc.clone(), started.clone());
        clients.spawn(async move { run_until_refused(&address, started).await });
    }
    let _busy = timeout(DEADLINE, started.acquire_many(640)).await.expect("the load is under way").unwrap();
    server.signal(Signal::SIGTERM);
    let tallies = timeout(DEADLINE, clients.join_all()).await.expect("every client is told in time");
    gate.open();
    assert!(matches!(last.await.unwrap().last(), TestEvent::Complete(_)));
    assert_eq!(server.wait().code(), Some(0), "nothing was lost");
    for tally in &tallies {
        let [(code, message)] = &tally.refused[..] else { panic!("{tally:?}") };
        assert_eq!(*code, Code::Unavailable, "{message}");
    }
    let completed: usize = tallies.iter().map(|tally| tally.completed).sum();
    assert!(completed >= 640, "{completed}");
}
