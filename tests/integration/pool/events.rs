//! Events of the pool reach its watchers in order, with their reasons.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use nix::sys::signal::Signal;
use remuda::api::proto::{self, CircuitState, PoolEvent, pool_event::Body};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::harness::{
    Client, Server, Watcher, eventually, eventually_async, fake_kind, query, reason_of, remuda, run, worker_of,
};

fn query_of(event: &PoolEvent) -> &str {
    match &event.body {
        Some(Body::WorkerMoved(moved)) => &moved.query_id,
        _ => "",
    }
}

/// Starts the kind's only worker by a first query and ends it by a restart; the watcher has seen all of it.
async fn a_whole_life(server: &Server, client: &mut Client) -> Watcher {
    let mut watcher = Watcher::of(client, &["k"], &["worker:"]).await;
    client.execute_as("first", query(&json!(1))).await.unwrap();
    watcher.until(|event| event.name == "worker:idle" && query_of(event).is_empty()).await;
    client.execute_as("second", query(&json!(2))).await.unwrap();
    watcher.until(|event| event.name == "worker:idle" && query_of(event) == "second").await;
    assert_eq!(run(server, &["scale", "k", "2"]).0, 0);
    watcher.worker("worker:ready", 2).await;
    assert_eq!(run(server, &["scale", "k", "1"]).0, 0);
    watcher.worker("worker:ended", 1).await;
    watcher
}

#[tokio::test]
async fn worker_life_is_reported_in_order_with_reasons_and_queries() {
    let server = Server::start(&fake_kind("k", &[], "min = 0\nmax = 2\nidle_after = \"10ms\""));
    let mut client = server.client().await;
    let watcher = a_whole_life(&server, &mut client).await;
    let mut expected = vec![
        ("worker:starting", "started", ""),
        ("worker:loading", "connected", ""),
        ("worker:ready", "ready", ""),
        ("worker:busy", "query dispatched", "first"),
        ("worker:idle", "query over", "first"),
        ("worker:idle", "no query for a while", ""),
        ("worker:busy", "query dispatched", "second"),
        ("worker:idle", "query over", "second"),
        ("worker:stopping", "scaled_down", ""),
        ("worker:dead", "", ""),
    ];
    let life: Vec<&PoolEvent> = watcher.seen.iter().filter(|event| worker_of(event) == Some(1)).collect();
    let (ended, life) = life.split_last().unwrap();
    // Whether it idles once more before it goes is up to the clock.
    let again = |event: &PoolEvent| reason_of(event) == "no query for a while";
    if again(life[8]) {
        expected.insert(8, ("worker:idle", "no query for a while", ""));
    }
    for (event, (name, reason, query)) in life.iter().zip(&expected) {
        assert_eq!((event.name.as_str(), query_of(event)), (*name, *query), "{:?}", watcher.life_of(1));
        assert!(reason.is_empty() || reason_of(event) == *reason, "{event:?}");
    }
    assert_eq!(life.len(), expected.len(), "{:?}", watcher.life_of(1));
    assert_eq!(ended.name, "worker:ended");
    assert!(reason_of(ended).contains("worker 1 (k)"), "{ended:?}");
    assert!(watcher.seen.is_sorted_by_key(|event| event.sequence), "numbers come in order");
    assert!(watcher.seen.iter().all(|event| event.kind == "k" && event.at.is_some()));
}

#[tokio::test]
async fn crash_is_reported_with_its_query_before_the_end() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let mut watcher = Watcher::new(&mut client).await;
    client.execute_as("fatal", query(&json!({"steps": [{"stderr": "ouch"}, {"exit": 7}]}))).await.unwrap();
    let ended = watcher.worker("worker:ended", 1).await;
    assert_eq!(watcher.life_of(1), ["worker:busy", "worker:crashed", "worker:dead", "worker:ended"]);
    let Some(Body::WorkerEnded(proto::WorkerEnded { certificate: Some(certificate) })) = ended.body else {
        panic!("{ended:?}")
    };
    assert_eq!((certificate.query_id.as_str(), certificate.exit_code), ("fatal", Some(7)));
    assert!(certificate.stderr_tail.contains("ouch"));
    let crashed = &watcher.seen[watcher.place("worker:crashed", 1)];
    assert_eq!((query_of(crashed), reason_of(crashed).as_str()), ("fatal", "process or connection gone"));
    // Whoever was told can ask.
    assert!(client.worker(1).await.certificate.is_some());
    let scaled = watcher.named("pool:scaled").await;
    assert_eq!(reason_of(&scaled), "0 of min 1 workers");
}

#[tokio::test]
async fn circuit_reports_that_it_opens_half_opens_and_closes() {
    let settings = "min = 1\nmax = 1\nrestart_backoff = \"5ms\"\nrestart_backoff_max = \"10ms\"\ncircuit_failures = 2";
    let fence = tempfile::tempdir().unwrap();
    let broken = fence.path().join("broken").display().to_string();
    let script = format!("test ! -e {broken} && exec {}", env!("CARGO_BIN_EXE_fake-worker"));
    std::fs::write(&broken, "").unwrap();
    let server = Server::start(&format!("[kinds.k]\ncommand = [\"sh\", \"-c\", {script:?}]\n{settings}\n"));
    let mut client = server.client().await;
    let mut watcher = Watcher::of(&mut client, &["k"], &["kind:"]).await;
    // The kind is broken from the start, so the opening may have been before anyone watched.
    server.logs("circuit opened");
    std::fs::remove_file(&broken).unwrap();
    let state = |event: &PoolEvent| match &event.body {
        Some(Body::Circuit(circuit)) => circuit.state(),
        other => panic!("{other:?}"),
    };
    let half_open = watcher.until(|event| state(event) == CircuitState::HalfOpen).await;
    assert_eq!(reason_of(&half_open), "a worker has started, queries are let through to it");
    client.all_free(1).await;
    client.execute(query(&json!(1))).await;
    let closed = watcher.next().await.unwrap();
    assert_eq!((state(&closed), reason_of(&closed).as_str()), (CircuitState::Closed, "workers serve again"));
    // Broken again while someone watches.
    std::fs::write(&broken, "").unwrap();
    client.execute(query(&json!({"steps": [{"exit": 1}]}))).await;
    let opened = watcher.next().await.unwrap();
    assert_eq!(state(&opened), CircuitState::Open);
    assert!(reason_of(&opened).contains("the last 2 starts failed"), "{opened:?}");
}

#[tokio::test]
async fn pool_reports_operations_until_it_stops() {
    let kind = |max: usize| fake_kind("k", &[], &format!("min = 1\nmax = {max}"));
    let server = Server::start(&kind(1));
    let mut client = server.client().await;
    client.all_free(1).await;
    server.logs("pool ready");
    let mut watcher = Watcher::of(&mut client, &[], &["pool:"]).await;
    run(&server, &["drain", "--reason", "a test"]);
    run(&server, &["resume"]);
    server.rewrite(&kind(3));
    run(&server, &["reload"]);
    run(&server, &["scale", "k", "2"]);
    client.all_free(2).await;
    server.signal(Signal::SIGTERM);
    while watcher.next().await.is_some() {}
    let told: Vec<(&str, String)> = watcher.seen.iter().map(|event| (event.name.as_str(), reason_of(event))).collect();
    let expected = [
        ("pool:drained", "by hand: a test"),
        ("pool:resumed", "by hand"),
        ("pool:reloaded", "kinds.k.max: 3 instead of 1"),
        ("pool:scaled", "1 of the 2 workers that were asked for"),
        ("pool:draining", "0 queries running"),
        ("pool:shut_down", "all workers stopped"),
    ];
    assert_eq!(told, expected.map(|(name, reason)| (name, reason.to_owned())));
}

#[tokio::test]
async fn watcher_gets_what_it_asked_for_and_no_more() {
    let server = Server::start(&format!(
        "{}{}",
        fake_kind("a", &[], "min = 1\nmax = 1"),
        fake_kind("b", &[], "min = 1\nmax = 1")
    ));
    let mut client = server.client().await;
    client.all_free(2).await;
    let mut busy_a = Watcher::of(&mut client, &["a"], &["worker:busy"]).await;
    let mut workers_b = Watcher::of(&mut client, &["b"], &["worker:"]).await;
    let mut both = Watcher::of(&mut client, &["a", "b"], &["worker:busy", "worker:idle"]).await;
    for kind in ["a", "b", "a"] {
        let query = proto::Query { kind: kind.to_owned(), ..query(&json!(1)) };
        client.execute(query).await;
    }
    let names_of = |events: &[PoolEvent]| -> Vec<(String, String)> {
        events.iter().map(|event| (event.kind.clone(), event.name.clone())).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect()
    };
    for _ in 0..2 {
        busy_a.next().await;
        workers_b.next().await;
    }
    for _ in 0..6 {
        both.next().await;
    }
    assert_eq!(names_of(&busy_a.seen), pairs(&[("a", "worker:busy"); 2]));
    assert_eq!(names_of(&workers_b.seen), pairs(&[("b", "worker:busy"), ("b", "worker:idle")]));
    let all = ["a", "b", "a"].map(|kind| [(kind, "worker:busy"), (kind, "worker:idle")]);
    assert_eq!(names_of(&both.seen), pairs(all.as_flattened()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watcher_learns_what_it_missed() {
    let server = Server::start(&fake_kind("k", &[], "min = 4\nmax = 4"));
    let mut client = server.client().await;
    client.all_free(4).await;
    // A client that takes in little it has not read.
    let narrow = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().initial_stream_window_size(65_535);
    let mut slow_client = Client::over(narrow.connect().await.unwrap());
    let mut slow = Watcher::new(&mut slow_client).await;
    // Each query is two events, and the server keeps some four thousand for a watcher that does not read.
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = server.client().await;
        clients.push(tokio::spawn(async move {
            for _ in 0..450 {
                client.execute(query(&json!(1))).await.result();
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let missed = slow.named("watch:missed").await;
    let Some(Body::Missed(proto::EventsMissed { count })) = missed.body else { panic!("{missed:?}") };
    let before = slow.seen.iter().rev().nth(1).expect("some were told before").sequence;
    let after = slow.next().await.unwrap().sequence;
    assert_eq!(after - before - 1, count, "what is missing is what was said to be");
    assert!(count > 0);
}

#[tokio::test]
async fn vanished_watcher_is_forgotten() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    server.logs("pool ready");
    drop(Watcher::new(&mut client).await);
    let call = r#"remuda_grpc_requests_total{code="CANCELLED",method="remuda.v1.PoolAdmin/WatchEvents"} 1"#;
    eventually_async("its call to be over, though nothing has happened", async || {
        server.get("/metrics").1.contains(call).then_some(())
    })
    .await;
    // Events are numbered while someone watches.
    client.execute(query(&json!(1))).await;
    client.all_free(1).await;
    let mut watcher = Watcher::new(&mut client).await;
    client.execute(query(&json!(2))).await;
    assert_eq!(watcher.named("worker:busy").await.sequence, 1);
}

#[tokio::test]
async fn events_come_through_a_pipe_line_by_line_as_they_happen() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc, "events", "--json", "--kind", "k", "--name", "worker:"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reading = thread::spawn({
        let lines = lines.clone();
        move || stdout.lines().for_each(|line| lines.lock().unwrap().push(line.unwrap()))
    });
    // It is not known when the command begins to watch, so there is something to see until it does.
    while lines.lock().unwrap().is_empty() {
        client.execute(query(&json!(1))).await;
    }
    client.execute_as("marked", query(&json!(1))).await.unwrap();
    eventually("both ends of the query to come through", || {
        let lines = lines.lock().unwrap();
        (lines.iter().filter(|line| line.contains("\"marked\"")).count() == 2).then_some(())
    });
    assert!(child.try_wait().unwrap().is_none(), "it watches on");
    for line in lines.lock().unwrap().iter() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&event["kind"], &event["worker_id"]), (&json!("k"), &json!(1)), "{line}");
    }
    assert!(server.stop_cleanly().success());
    let output = child.wait_with_output().unwrap();
    reading.join().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b"note: the server has stopped\n"[..]));
    assert!(lines.lock().unwrap().last().unwrap().contains("worker:ended"));
}
