//! Reloads that add, remove, break, repair or resize kinds.

use nix::sys::signal::Signal;
use remuda::api::proto::{ConfigEffect, DeathCause, KindHealth, Query, QueryState};
use serde_json::{Value, json};
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    harness::{
        Client, Load, Server, TestEvent, Watcher, eventually_async, fake_kind, query, reason_of, run, worker_of,
    },
    integration::reload::config::{only_new_workers, workers_up},
};

fn of_kind(kind: &str, payload: &Value) -> Query {
    Query { kind: kind.to_owned(), ..query(payload) }
}

fn kind(name: &str) -> String {
    fake_kind(name, &[], "min = 1\nmax = 1")
}

/// The status of a name in the standard health service; `None` if it is not known.
async fn standard_health(server: &Server, service: &str) -> Option<ServingStatus> {
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: service.to_owned() };
    match HealthClient::new(channel).check(request).await {
        Ok(answer) => Some(answer.into_inner().status()),
        Err(status) if status.code() == Code::NotFound => None,
        Err(status) => panic!("{status}"),
    }
}

async fn health_of(client: &mut Client, kind: &str) -> KindHealth {
    client.health().await.kinds.into_iter().find(|health| health.kind == kind).expect("the kind is known")
}

async fn serves(client: &Client, kind: &str) {
    eventually_async("the kind to serve", || {
        let mut client = client.clone();
        async move { health_of(&mut client, kind).await.serving.then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn new_kind_is_started_and_serves() {
    let server = Server::start(&kind("a"));
    let mut client = server.client().await;
    workers_up(&client, 1).await;
    assert_eq!(standard_health(&server, "b").await, None);
    server.rewrite(&format!("{}{}", kind("a"), fake_kind("b", &[], "min = 1\ntypes = [\"b-work\"]")));
    let reload = client.reload(false).await.unwrap();
    assert_eq!((reload.changes[0].path.as_str(), reload.changes[0].effect()), ("kinds.b", ConfigEffect::KindAdded));
    serves(&client, "b").await;
    assert_eq!(standard_health(&server, "b").await, Some(ServingStatus::Serving));
    assert_eq!(client.execute(of_kind("b", &json!(1))).await.result(), json!({"echo": 1}));
    let by_type = Query { r#type: "b-work".to_owned(), ..query(&json!(2)) };
    assert_eq!(client.execute(by_type).await.result(), json!({"echo": 2}));
    for query_type in ["none", "b-work"] {
        let series = format!(r#"remuda_query_results_total{{kind="b",outcome="complete",type="{query_type}"}}"#);
        assert_eq!(server.metric(&series) as u32, 1, "{query_type}");
    }
    assert_eq!(client.workers().await[0].worker_id, 1, "the other kind is as it was");
}

#[tokio::test]
async fn removed_kind_finishes_what_it_accepted_and_takes_nothing_new() {
    let server = Server::start(&format!("{}{}", kind("a"), kind("b")));
    let mut client = server.client().await;
    workers_up(&client, 2).await;
    let gate = server.dir.path().join("gate").display().to_string();
    let slow = json!({"steps": [{"message": 1}, {"await_file": gate}, {"complete": "ran"}]});
    let running = client.submit(of_kind("b", &slow)).await.unwrap();
    let streaming = || async { client.clone().state(&running).await == QueryState::Streaming };
    eventually_async("its first message", || async { streaming().await.then_some(()) }).await;
    let waiting = client.submit(of_kind("b", &json!("waited"))).await.unwrap();
    assert_eq!(client.state(&waiting).await, QueryState::Pending);
    server.rewrite(&kind("a"));
    let reload = client.reload(false).await.unwrap();
    assert_eq!((reload.changes[0].path.as_str(), reload.changes[0].effect()), ("kinds.b", ConfigEffect::KindRemoved));
    let refused = client.submit(of_kind("b", &json!(1))).await.unwrap_err();
    let text = "query.kind: there is no kind \"b\"; this pool has: a";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    assert_eq!(standard_health(&server, "b").await, None);
    let (code, _, err) = run(&server, &["scale", "b", "1"]);
    assert!(code == 1 && err.contains("there is no kind \"b\"; this pool has: a"), "{err}");
    assert_eq!(client.state(&running).await, QueryState::Streaming, "it runs on");
    let worker = client.workers().await.into_iter().find(|worker| worker.kind == "b").expect("it still has a worker");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(client.read_all(&running).await.last(), Some(&TestEvent::Complete(json!("ran"))));
    assert_eq!(client.read_all(&waiting).await.last(), Some(&TestEvent::Complete(json!({"echo": "waited"}))));
    workers_up(&client, 1).await;
    let end = client.worker(worker.worker_id).await.certificate.expect("it has ended");
    assert_eq!((end.cause(), end.queries_processed), (DeathCause::Reloaded, 2), "{}", end.summary);

    // It comes back by another reload.
    server.rewrite(&format!("{}{}", kind("a"), kind("b")));
    assert!(client.reload(false).await.unwrap().applied);
    serves(&client, "b").await;
    assert_eq!(client.execute(of_kind("b", &json!(3))).await.result(), json!({"echo": 3}));
    assert_eq!(standard_health(&server, "b").await, Some(ServingStatus::Serving));
}

#[tokio::test]
async fn dead_letter_of_a_removed_kind_waits_until_the_kind_is_back() {
    let server = Server::start(&format!("{}{}", kind("a"), kind("b")));
    let mut client = server.client().await;
    client.execute_as("letter", of_kind("b", &json!({"steps": [{"exit": 1}]}))).await.unwrap();
    server.rewrite(&kind("a"));
    client.reload(false).await.unwrap();
    let (code, _, err) = run(&server, &["dead", "requeue", "letter"]);
    assert!(code == 2 && err.contains("there is no kind \"b\"; this pool has: a"), "{code} {err}");
    let (_, listed, _) = run(&server, &["dead", "list"]);
    assert!(listed.contains("letter"), "it is still there: {listed}");
    server.rewrite(&format!("{}{}", kind("a"), kind("b")));
    client.reload(false).await.unwrap();
    assert_eq!(run(&server, &["dead", "requeue", "letter"]).0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_does_not_start_leaves_the_old_workers_in_service() {
    let settings = "min = 2\nmax = 2\nrestart_backoff = \"10ms\"\nrestart_backoff_max = \"20ms\"\ncircuit_failures = 2";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    workers_up(&client, 2).await;
    let mut watcher = Watcher::of(&mut client, &[], &["kind:circuit"]).await;
    let load = Load::start(&server, 4, &json!("load")).await;
    server.rewrite(&fake_kind("k", &["--start", r#"[{"stderr":"no licence"},{"exit":3}]"#], settings));
    server.signal(Signal::SIGHUP);
    server.logs("circuit opened");
    let opened = watcher.next().await.unwrap();
    assert!(reason_of(&opened).contains("exited with code 3"), "{opened:?}");
    let health = health_of(&mut client, "k").await;
    assert!(health.serving, "{health:?}");
    let failure = health.last_failure.expect("health tells of the failure");
    assert!(failure.summary.contains("no licence"), "{}", failure.summary);
    let (code, out, _) = run(&server, &["health"]);
    assert!(code == 0 && out.contains("last failure of k") && out.contains("no licence"), "{out}");
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
    for id in [1, 2] {
        assert!(client.worker(id).await.certificate.is_none(), "worker {id} is still there");
    }

    // The second reload is to a command that starts, and everything is as it should be.
    let last = client.workers().await.iter().map(|worker| worker.worker_id).max().unwrap();
    server.rewrite(&fake_kind("k", &["--idle", "[]"], settings));
    assert!(client.reload(false).await.unwrap().applied);
    assert!(reason_of(&watcher.next().await.unwrap()).contains("the configuration changed"), "the circuit is closed");
    only_new_workers(&client, 2, last.max(2)).await;
    load.stop().await;
    let failed = server.metric(r#"remuda_query_results_total{kind="k",outcome="error",type="none"}"#)
        + server.metric(r#"remuda_query_results_total{kind="k",outcome="rejected",type="none"}"#);
    assert!(failed.abs() < f64::EPSILON, "{failed} queries failed");
}

#[tokio::test]
async fn change_that_is_taken_back_costs_no_worker_its_life() {
    let settings = "min = 2\nmax = 2\nrestart_backoff = \"10ms\"\nrestart_backoff_max = \"20ms\"";
    let good = fake_kind("k", &[], settings);
    let server = Server::start(&good);
    let mut client = server.client().await;
    workers_up(&client, 2).await;
    let mut watcher = Watcher::new(&mut client).await;
    // A worker that never becomes ready is on its way when the change is taken back.
    server.rewrite(&fake_kind("k", &["--start", r#"["connect","hang"]"#], settings));
    client.reload(false).await.unwrap();
    let started = worker_of(&watcher.named("worker:loading").await).unwrap();
    server.rewrite(&good);
    client.reload(false).await.unwrap();
    watcher.worker("worker:ended", started).await;
    let ids: Vec<u64> = client.workers().await.iter().map(|worker| worker.worker_id).collect();
    assert_eq!(ids, [1, 2]);
    // A later change still reaches them.
    server.rewrite(&fake_kind("k", &["--idle", "[]"], settings));
    client.reload(false).await.unwrap();
    only_new_workers(&client, 2, started).await;
    assert_eq!(watcher.life_of(1), [] as [&str; 0], "nothing had happened to it before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lower_max_holds_at_once_even_under_load() {
    let sized = |max: usize| fake_kind("k", &[], &format!("min = 1\nmax = {max}\nscale_up_after = \"0s\""));
    let server = Server::start(&sized(6));
    let mut client = server.client().await;
    assert_eq!(run(&server, &["scale", "k", "6"]).0, 0);
    workers_up(&client, 6).await;
    let load = Load::start(&server, 12, &json!({"steps": [{"sleep_ms": 5}, {"complete": 1}]})).await;
    let mut watcher = Watcher::of(&mut client, &["k"], &["pool:scaled"]).await;
    server.rewrite(&sized(2));
    assert!(client.reload(false).await.unwrap().applied);
    eventually_async("only two workers to be left", || {
        let mut client = client.clone();
        async move { (client.workers().await.len() == 2).then_some(()) }
    })
    .await;
    assert_eq!(reason_of(&watcher.next().await.unwrap()), "max is 2");
    load.stop().await;
}

#[tokio::test]
async fn size_that_was_asked_for_outlives_a_reload_within_the_new_limits() {
    let sized = |max: usize, timeout: u32| {
        let quick = "scale_down_after = \"10ms\"\nidle_ttl = \"10ms\"";
        fake_kind("k", &[], &format!("min = 1\nmax = {max}\nqueue_timeout = \"{timeout}s\"\n{quick}"))
    };
    let server = Server::start(&sized(4, 60));
    let mut client = server.client().await;
    assert_eq!(run(&server, &["scale", "k", "3"]).0, 0);
    workers_up(&client, 3).await;
    server.rewrite(&sized(4, 61));
    assert!(client.reload(false).await.unwrap().applied);
    client.two_ticks().await;
    workers_up(&client, 3).await;
    assert_eq!(client.worker(1).await.certificate, None);
    assert_eq!(run(&server, &["scale", "k", "+1"]).1, "kind k is to have 4 workers now; it was 3\n");
    workers_up(&client, 4).await;
    server.rewrite(&sized(2, 61));
    assert!(client.reload(false).await.unwrap().applied);
    workers_up(&client, 2).await;
}
