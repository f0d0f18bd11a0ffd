//! Recovery of queries whose workers die, report errors, hang or do not start.

use nix::sys::signal::Signal;
use remuda::api::proto::{
    self, DeathCause, DisconnectPolicy, ErrorReason, Query, QueryState, RecoveryPolicy, RecoveryStrategy,
    disconnect_policy::Policy, event::Body,
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Ended, Server, TestEvent, eventually, eventually_async, fake_kind, query, send_signal};

/// A query that dies on its first `deaths` attempts.
fn dies(deaths: u32) -> Value {
    json!({"steps": [{"message": "begun"}, {"until_attempt": [deaths, [{"stderr": "boom"}, {"exit": 3}]]}, {"complete": "done"}]})
}

fn with_retries(attempts: u32, payload: &Value) -> Query {
    let recovery = RecoveryPolicy { strategy: RecoveryStrategy::Retry.into(), attempts };
    Query { recovery: Some(recovery), ..query(payload) }
}

fn retrying(ended: &Ended) -> Vec<proto::RetryingEvent> {
    let retrying = |event: &proto::Event| match &event.body {
        Some(Body::Retrying(retrying)) => Some(retrying.clone()),
        _ => None,
    };
    ended.events.iter().filter_map(retrying).collect()
}

async fn wait_for(client: &Client, id: &str, state: QueryState) {
    eventually_async("a query's state", || {
        let (mut client, id) = (client.clone(), id.to_owned());
        async move { (client.state(&id).await == state).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn death_is_rejected_by_default_and_retried_by_type_or_by_the_query() {
    let kind = fake_kind("k", &[], "min = 2\nmax = 2\ntypes = [\"safe\", \"risky\"]");
    let server = Server::start(&format!("[recovery.types.safe]\nstrategy = \"retry\"\nattempts = 2\n{kind}"));
    let mut client = server.client().await;

    let rejected = client.execute(Query { r#type: "risky".to_owned(), ..query(&dies(1)) }).await;
    let error = rejected.error();
    assert_eq!(error.reason(), ErrorReason::WorkerDied);
    assert!(error.message.contains("exited with code 3 after "), "{}", error.message);
    assert!(error.message.contains("; attempt 1 of 1; its last words: boom"), "{}", error.message);

    let by_type = client.execute(Query { r#type: "safe".to_owned(), ..query(&dies(2)) }).await;
    assert_eq!(by_type.result(), json!("done"));
    let retries = retrying(&by_type);
    assert_eq!(
        retries.iter().map(|retry| (retry.failed_attempt, retry.max_attempts)).collect::<Vec<_>>(),
        [(1, 3), (2, 3)]
    );
    let dead: Vec<u64> = retries.iter().map(|retry| retry.certificate.as_ref().unwrap().worker_id).collect();
    assert_ne!(dead[0], dead[1], "another worker each time");
    let attempts: Vec<_> = by_type.events.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 2, 3, 3]);
    let sequences: Vec<_> = by_type.events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (0..6).collect::<Vec<_>>());

    let own_word = client.execute(Query { r#type: "risky".to_owned(), ..with_retries(1, &dies(1)) }).await;
    assert_eq!(own_word.result(), json!("done"));
    let exhausted = client.execute(Query { r#type: "risky".to_owned(), ..with_retries(1, &dies(9)) }).await;
    assert!(exhausted.error().message.contains("; attempt 2 of 2; "), "{}", exhausted.error().message);
    assert!(server.metric(r#"remuda_query_retries_total{kind="k",reason="worker_died"}"#) >= 4.0);
}

#[tokio::test]
async fn retryable_error_backs_off_and_is_tried_again() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1");
    let server = Server::start(&format!("[retry]\nattempts = 2\nbackoff = \"20ms\"\n{kind}"));
    let mut client = server.client().await;
    let busy = json!([{"error": {"error": "busy", "retryable": true}}]);
    let once = json!({"steps": [{"until_attempt": [1, busy]}, {"complete": "done"}]});
    let ended = client.execute(query(&once)).await;
    assert_eq!(ended.result(), json!("done"));
    let delay = retrying(&ended)[0].delay.unwrap();
    assert!((15_000_000..=20_000_000).contains(&delay.nanos), "{delay:?}");
    let always = json!({"steps": [{"until_attempt": [9, busy]}]});
    let ended = client.execute(query(&always)).await;
    assert_eq!(ended.error().message, "busy; attempt 3 of 3");
    assert_eq!(client.workers().await[0].worker_id, 1, "the worker is fine");
}

#[tokio::test]
async fn dead_letters_are_listed_requeued_and_purged() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1");
    let server = Server::start(&kind);
    let mut client = server.client().await;
    client.execute_as("crashed", query(&dies(1))).await.unwrap();
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 });
    let late = Query { timeout, ..query(&json!({"steps": ["hang"]})) };
    client.execute_as("late", late).await.unwrap();
    client.execute_as("reported", query(&json!({"steps": [{"error": {"error": "no"}}]}))).await.unwrap();
    let list = async |client: &mut Client| {
        let request = proto::ListDeadLettersRequest::default();
        client.admin.list_dead_letters(request).await.unwrap().into_inner().letters
    };
    let letters = list(&mut client).await;
    let ids: Vec<_> = letters.iter().map(|letter| letter.query.as_ref().unwrap().query_id.as_str()).collect();
    assert_eq!(ids, ["crashed", "late"]);
    assert_eq!(serde_json::from_str::<Value>(&letters[0].payload).unwrap(), dies(1));
    let failure = letters[0].failures[0].error.as_ref().unwrap();
    assert_eq!(failure.certificate.as_ref().unwrap().exit_code, Some(3));

    let request = proto::RequeueDeadLettersRequest { query_ids: vec!["crashed".to_owned()], ..Default::default() };
    let requeued = client.admin.requeue_dead_letters(request.clone()).await.unwrap().into_inner().requeued;
    let new_id = requeued[0].new_query_id.clone();
    client.read_all(&new_id).await;
    let info = client.admin.get_query(proto::GetQueryRequest { query_id: new_id }).await.unwrap().into_inner();
    assert_eq!(info.query.unwrap().requeued_from, "crashed");
    let again = client.admin.requeue_dead_letters(request).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    assert!(again.message().starts_with("there is no dead letter crashed; "), "{}", again.message());

    let all = proto::PurgeDeadLettersRequest { all: true, ..Default::default() };
    assert!(client.admin.purge_dead_letters(all).await.unwrap().into_inner().purged >= 1);
    assert!(list(&mut client).await.is_empty());
    let none = proto::PurgeDeadLettersRequest::default();
    let refused = client.admin.purge_dead_letters(none).await.unwrap_err();
    assert_eq!(refused.message(), "query_ids: is empty; name dead letters, or set `all`");
}

#[tokio::test]
async fn poison_query_kills_no_more_workers_than_it_has_attempts() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2"));
    let mut client = server.client().await;
    let ended = client.execute(with_retries(2, &dies(99))).await;
    assert_eq!(ended.error().reason(), ErrorReason::WorkerDied);
    eventually("the pool to be back at its size", || {
        (server.metric(r#"remuda_workers{kind="k",state="ready"}"#) as u32 == 2).then_some(())
    });
    assert_eq!(server.metric(r#"remuda_worker_exits_total{cause="crash",kind="k"}"#) as u32, 3);
}

const HEARTBEAT_SETTINGS: &str = "min = 1\nmax = 1\nterm_grace = \"100ms\"\nheartbeat_warning = \"400ms\"\n\
                       heartbeat_timeout = \"1s\"\nping_interval = \"50ms\"";

#[tokio::test]
async fn stopped_worker_is_found_while_idle_and_replaced() {
    let server = Server::start(&fake_kind("k", &[], HEARTBEAT_SETTINGS));
    let mut client = server.client().await;
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
    let pid = client.workers().await[0].pid;
    send_signal(pid, Signal::SIGSTOP);
    eventually("the stopped worker to be found", || {
        (server.metric(r#"remuda_worker_exits_total{cause="no_heartbeat",kind="k"}"#) as u32 == 1).then_some(())
    });
    let certificate = client.worker(1).await.certificate.unwrap();
    let (_, silence) = certificate.summary.split_once("gave no sign of life for ").expect("it says how long");
    let seconds: f64 = silence.split_once(" s").unwrap().0.parse().unwrap();
    assert!((1.0..1.4).contains(&seconds), "{}", certificate.summary);
    assert_eq!(client.execute(query(&json!(2))).await.result(), json!({"echo": 2}));
    server.logs("not given a sign of life for a while");
}

#[tokio::test]
async fn worker_that_promised_heartbeats_must_send_them_while_busy_too() {
    let start = ["--start", r#"["connect",{"ready":{"heartbeat":true}}]"#];
    let server = Server::start(&fake_kind("k", &start, HEARTBEAT_SETTINGS));
    let mut client = server.client().await;
    let error = client.execute(query(&json!({"steps": ["hang"]}))).await.error();
    assert_eq!(error.certificate.unwrap().cause(), DeathCause::NoHeartbeat);
    let server = Server::start(&fake_kind("k", &[], HEARTBEAT_SETTINGS));
    let mut client = server.client().await;
    let quiet = json!({"steps": [{"sleep_ms": 1500}, {"complete": "slow but sure"}]});
    assert_eq!(client.execute(query(&quiet)).await.result(), json!("slow but sure"), "it promised none");
}

#[tokio::test]
async fn kind_that_does_not_start_fails_fast_and_recovers_when_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("worker");
    let path = program.display().to_string();
    let settings = "min = 1\nmax = 1\nrestart_backoff = \"20ms\"\nrestart_backoff_max = \"50ms\"\ncircuit_failures = 3";
    let good = fake_kind("good", &[], "min = 1\nmax = 1");
    let server = Server::start(&format!("[kinds.k]\ncommand = [{path:?}]\n{settings}\n{good}"));
    let mut client = server.client().await;
    let of_kind = |kind: &str| Query { kind: kind.to_owned(), ..query(&json!(1)) };
    let refused = eventually_async("the circuit to open", || {
        let mut client = client.clone();
        let query = of_kind("k");
        async move { client.submit(query).await.err() }
    })
    .await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().starts_with("workers of kind k do not start, so its queries fail at once; the last "));
    assert!(refused.message().contains("was not found"), "{}", refused.message());
    assert_eq!(refused.get_error_details().error_info().unwrap().reason, "CIRCUIT_OPEN");
    assert_eq!(client.execute(of_kind("good")).await.result(), json!({"echo": 1}), "the others serve");
    // Queries that were waiting when it opened have ended, too.
    assert!(server.metric(r#"remuda_queue_depth{kind="k"}"#).abs() < f64::EPSILON);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fake-worker"), &program).unwrap();
    eventually_async("the kind to recover", || {
        let mut client = client.clone();
        let query = of_kind("k");
        async move { client.submit(query).await.ok() }
    })
    .await;
    assert_eq!(client.execute(of_kind("k")).await.result(), json!({"echo": 1}));
}

#[tokio::test]
async fn worker_that_swallows_queries_while_its_siblings_do_not_is_replaced() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2\nmax_failures = 3"));
    let mut client = server.client().await;
    // Worker 1 fails whatever it gets, the other one does not.
    let steps = json!({"steps": [{"if_worker": [1, [{"error": {"error": "no"}}]]}, {"complete": 1}]});
    eventually_async("the bad worker to be replaced", || {
        let (mut client, steps) = (client.clone(), steps.clone());
        async move {
            client.execute(query(&steps)).await;
            let workers = client.workers().await;
            (workers.iter().all(|worker| worker.worker_id != 1) && workers.len() == 2).then_some(())
        }
    })
    .await;
    assert_eq!(client.worker(1).await.certificate.unwrap().cause(), DeathCause::Evicted);
}

#[tokio::test]
async fn on_disconnect_decides_what_happens_when_the_reader_goes() {
    let server = Server::start(&fake_kind("k", &[], "min = 3\nmax = 3"));
    let mut client = server.client().await;
    let hang = |policy| Query {
        on_disconnect: Some(DisconnectPolicy { policy: Some(policy) }),
        ..query(&json!({"steps": [{"message": 1}, "hang"]}))
    };
    let detach = prost_types::Duration { seconds: 0, nanos: 50_000_000 };
    for (id, policy) in [("now", Policy::Cancel(true)), ("soon", Policy::Detach(detach)), ("never", Policy::Keep(true))]
    {
        let request = proto::ExecuteRequest { query_id: id.to_owned(), query: Some(hang(policy)) };
        let stream = client.pool.execute(request).await.unwrap();
        wait_for(&client, id, QueryState::Streaming).await;
        drop(stream);
    }
    wait_for(&client, "now", QueryState::Cancelled).await;
    wait_for(&client, "soon", QueryState::Cancelled).await;
    assert_eq!(client.state("never").await, QueryState::Streaming);
    client.cancel("never", "done").await.unwrap();
    assert_eq!(client.read_all("never").await.last(), Some(&TestEvent::Cancelled("done".to_owned())));
}

#[tokio::test]
async fn flooding_worker_does_not_keep_the_server_from_anything() {
    // A quarter of the whole stop is kept for cleaning up, which a busy machine needs.
    let settings = "min = 1\nmax = 1\ncancel_grace = \"1s\"\nterm_grace = \"1s\"";
    let kind = fake_kind("k", &[], settings);
    let server = Server::start(&format!("[pool]\ndrain_timeout = \"100ms\"\n{kind}"));
    let mut client = server.client().await;
    let flood = json!({"steps": ["ignore_cancel", {"messages": {"count": 1_000_000_000, "size": 100}}]});
    let id = client.submit(query(&flood)).await.unwrap();
    wait_for(&client, &id, QueryState::Streaming).await;
    assert_eq!(server.get("/livez").0, 200);
    client.cancel(&id, "too much").await.unwrap();
    wait_for(&client, &id, QueryState::Cancelled).await;
    let second = client.submit(query(&flood)).await.unwrap();
    wait_for(&client, &second, QueryState::Streaming).await;
    assert_eq!(server.stop_cleanly().code(), Some(1), "the second flood was cut short");
}

#[tokio::test]
async fn idle_workers_that_die_leave_no_descriptor_behind() {
    let settings =
        "min = 1\nmax = 1\nrestart_backoff = \"1ms\"\nrestart_backoff_max = \"1ms\"\ncircuit_failures = 1000000";
    let server = Server::start(&fake_kind("k", &["--idle", r#"[{"exit":1}]"#], settings));
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let deaths = || server.metric(r#"remuda_worker_exits_total{cause="crash",kind="k"}"#) as u32;
    eventually("some deaths", || (deaths() > 5).then_some(()));
    let before = open();
    let begun = deaths();
    eventually("many deaths", || (deaths() > begun + 40).then_some(()));
    assert!(open() < before + 20, "{} descriptors after {before}", open());
}
