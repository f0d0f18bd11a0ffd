//! Each metric moves with its event, and not before.

use nix::sys::signal::Signal;
use remuda::api::proto::{
    CancelRequest, CancelResponse, ExecuteRequest, PurgeDeadLettersRequest, Query, QueryState, SubmitRequest,
    SubmitResponse,
};
use serde_json::{Value, json};

use crate::harness::{Client, Server, eventually, eventually_async, fake_kind, query, raw, run};

/// Waits until each series has its value; a value of -1 stands for any above 0.
#[track_caller]
fn become_so(server: &Server, series: &[(&str, f64)]) {
    for (name, value) in series {
        eventually(&format!("{name} to be {value}"), || {
            let found = server.metric(name);
            (if *value < 0.0 { found > 0.0 } else { (found - value).abs() < 1e-9 }).then_some(())
        });
    }
}

fn steps(steps: &Value) -> Query {
    query(&json!({ "steps": steps }))
}

async fn streaming(client: &Client, query: Query) -> String {
    let id = client.clone().submit(query).await.unwrap();
    eventually_async("the query to stream", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move { (client.state(&id).await == QueryState::Streaming).then_some(()) }
    })
    .await;
    id
}

const QUICK: &str = "min = 1\nmax = 1\nmemory = \"20MiB\"\nmemory_limit = \"1GiB\"\ncancel_grace = \"1s\"\n\
    term_grace = \"1s\"\ntypes = [\"known\"]\nrestart_backoff = \"1ms\"";

fn start() -> Server {
    let retry = "[retry]\nbackoff = \"1ms\"\n[recovery.types.known]\nstrategy = \"retry\"\n";
    let pool = "[pool]\nmemory_budget = \"100MiB\"\nmax_workers = 7\n[queue]\nmax_queries = 55\n";
    Server::start(&format!("{pool}{retry}{}", fake_kind("k", &[], QUICK)))
}

#[tokio::test]
async fn starts_move_their_metrics() {
    let server = start();
    let _client = server.client().await;
    become_so(
        &server,
        &[
            (r#"remuda_workers{kind="k",state="ready"}"#, 1.0),
            (r#"remuda_worker_start_seconds_count{kind="k"}"#, 1.0),
            (r#"remuda_worker_transitions_total{from="loading",kind="k",to="ready"}"#, 1.0),
            (r#"remuda_scalings_total{direction="up",kind="k"}"#, 1.0),
            (r#"remuda_scalings_total{direction="down",kind="k"}"#, 0.0),
            (r#"remuda_workers_limit{kind="k",limit="min"}"#, 1.0),
            (r#"remuda_workers_limit{kind="k",limit="max"}"#, 1.0),
            ("remuda_pool_workers_limit", 7.0),
            ("remuda_queue_limit", 55.0),
            ("remuda_memory_budget_bytes", 100.0 * 1_048_576.0),
            (r#"remuda_memory_reserved_bytes{kind="k"}"#, 20.0 * 1_048_576.0),
            (r#"remuda_worker_memory_bytes{kind="k"}"#, -1.0),
            (r#"remuda_worker_silence_seconds{kind="k"}"#, -1.0),
            (r#"remuda_serving{kind="k"}"#, 1.0),
            (r#"remuda_circuit_state{kind="k"}"#, 0.0),
            (r#"remuda_build_info{version="0.1.0"}"#, 1.0),
            ("remuda_start_time_seconds", -1.0),
            ("remuda_grpc_connections", 1.0),
            ("remuda_grpc_connections_limit", 1024.0),
            ("process_resident_memory_bytes", -1.0),
            ("process_virtual_memory_bytes", -1.0),
            ("process_open_fds", -1.0),
            ("process_max_fds", -1.0),
            ("process_threads", -1.0),
            ("process_cpu_seconds_total", -1.0),
            ("process_start_time_seconds", -1.0),
        ],
    );
}

#[tokio::test]
async fn workers_and_queries_move_their_metrics() {
    let server = start();
    let mut client = server.client().await;
    client.execute(query(&json!(1))).await;
    client.execute(Query { kind: "k".into(), r#type: "made up".into(), ..steps(&json!([{"complete": 1}])) }).await;
    let flaky = json!([{"until_attempt": [1, [{"error": {"error": "later", "retryable": true}}]]}, {"complete": 1}]);
    client.execute(steps(&flaky)).await;
    let dies_once = json!([{"until_attempt": [1, [{"exit": 9}]]}, {"complete": 1}]);
    client.execute(Query { r#type: "known".into(), ..steps(&dies_once) }).await;
    client.execute(steps(&json!([{"error": {"error": "no"}}]))).await;
    client.execute(steps(&json!(["stale", {"complete": 1}]))).await;
    let dead = client.execute(steps(&json!([{"exit": 3}]))).await;
    let late =
        Query { timeout: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }), ..steps(&json!(["hang"])) };
    client.execute(late).await;
    become_so(
        &server,
        &[
            (r#"remuda_query_first_message_seconds_count{kind="k"}"#, 1.0),
            (r#"remuda_query_results_total{kind="k",outcome="complete",type="none"}"#, 3.0),
            (r#"remuda_query_results_total{kind="k",outcome="complete",type="known"}"#, 1.0),
            (r#"remuda_query_results_total{kind="k",outcome="complete",type="other"}"#, 1.0),
            (r#"remuda_query_results_total{kind="k",outcome="error",type="none"}"#, 3.0),
            (r#"remuda_query_retries_total{kind="k",reason="reported"}"#, 1.0),
            (r#"remuda_query_retries_total{kind="k",reason="worker_died"}"#, 1.0),
            (r#"remuda_query_failures_total{kind="k",reason="reported"}"#, 1.0),
            (r#"remuda_query_failures_total{kind="k",reason="worker_died"}"#, 1.0),
            (r#"remuda_query_failures_total{kind="k",reason="timed_out"}"#, 1.0),
            (r#"remuda_worker_exits_total{cause="crash",kind="k"}"#, 2.0),
            (r#"remuda_worker_restarts_total{kind="k"}"#, 2.0),
            (r#"remuda_dead_letters_total{kind="k"}"#, 2.0),
            (r#"remuda_dead_letters{kind="k"}"#, 2.0),
            (r#"remuda_stale_frames_total{kind="k"}"#, 1.0),
            (r#"remuda_queue_wait_seconds_count{kind="k"}"#, 10.0),
            (r#"remuda_query_duration_seconds_count{kind="k"}"#, 8.0),
            (r#"remuda_queries{kind="k",state="error"}"#, 3.0),
        ],
    );
    let purge = PurgeDeadLettersRequest { query_ids: vec![dead.query_id], ..Default::default() };
    client.admin.purge_dead_letters(purge).await.unwrap();
    let purge = r#"remuda_grpc_requests_total{code="OK",method="remuda.v1.PoolAdmin/PurgeDeadLetters"}"#;
    become_so(&server, &[(r#"remuda_dead_letters{kind="k"}"#, 1.0), (purge, 1.0)]);
    become_so(&server, &[(r#"remuda_grpc_seconds_count{method="remuda.v1.WorkerPool/Execute"}"#, 8.0)]);
    assert_eq!(run(&server, &["dead", "requeue", "--all"]).0, 0);
    become_so(&server, &[(r#"remuda_dead_letters{kind="k"}"#, 0.0)]);
}

#[tokio::test]
async fn cancels_and_waiting_queries_move_their_metrics() {
    let server = Server::start(&fake_kind("k", &[], &QUICK.replace("memory_limit = \"1GiB\"\n", "")));
    let mut client = server.client().await;
    for (stage, script) in [
        ("cancel_frame", json!([{"message": 1}, "hang"])),
        ("sigterm", json!(["ignore_cancel", {"message": 1}, "hang_hard"])),
        ("sigkill", json!(["ignore_cancel", "ignore_term", {"message": 1}, "hang_hard"])),
    ] {
        let id = streaming(&client, steps(&script)).await;
        if stage == "cancel_frame" {
            let waits = client.submit(query(&json!(1))).await.unwrap();
            let is = r#"remuda_queries{kind="k",state="pending"}"#;
            become_so(&server, &[(r#"remuda_queue_depth{kind="k"}"#, 1.0), (is, 1.0)]);
            become_so(&server, &[(r#"remuda_queue_oldest_seconds{kind="k"}"#, -1.0)]);
            client.cancel(&waits, "").await.unwrap();
            become_so(&server, &[(r#"remuda_cancel_seconds_count{kind="k",stage="queued"}"#, 1.0)]);
            become_so(&server, &[(r#"remuda_queue_oldest_seconds{kind="k"}"#, 0.0)]);
        }
        client.cancel(&id, "").await.unwrap();
        become_so(&server, &[(&format!(r#"remuda_cancel_seconds_count{{kind="k",stage="{stage}"}}"#), 1.0)]);
    }
    become_so(
        &server,
        &[
            (r#"remuda_query_results_total{kind="k",outcome="cancelled",type="none"}"#, 4.0),
            (r#"remuda_worker_exits_total{cause="cancel",kind="k"}"#, 2.0),
            (r#"remuda_worker_restarts_total{kind="k"}"#, 0.0),
        ],
    );
    let waited = server.metric(r#"remuda_cancel_seconds_sum{kind="k",stage="sigkill"}"#);
    assert!((2.0..6.8).contains(&waited), "not both graces and little more: {waited}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_make_a_worker_wait_and_then_miss_events() {
    let results = "[results]\nmax_bytes = \"64KiB\"\nmax_stall = \"100ms\"\n";
    let server = Server::start(&format!("{results}{}", fake_kind("k", &[], "min = 1")));
    let mut client = server.client().await;
    let flood = steps(&json!([{"messages": {"count": 8_000, "size": 1_024}}]));
    let request = ExecuteRequest { query_id: String::new(), query: Some(flood) };
    let stream = client.pool.execute(request).await.unwrap();
    become_so(
        &server,
        &[
            (r#"remuda_reader_stalls_total{kind="k"}"#, -1.0),
            (r#"remuda_events_dropped_total{kind="k"}"#, -1.0),
            (r#"remuda_query_results_total{kind="k",outcome="complete",type="none"}"#, 1.0),
        ],
    );
    let dropped = server.metric(r#"remuda_events_dropped_total{kind="k"}"#);
    assert!((1_000.0..8_000.0).contains(&dropped), "{dropped}");
    drop(stream);
    become_so(
        &server,
        &[(r#"remuda_grpc_requests_total{code="CANCELLED",method="remuda.v1.WorkerPool/Execute"}"#, 1.0)],
    );
}

#[tokio::test]
async fn evictions_and_circuits_move_their_metrics() {
    let pool = "[pool]\nmax_workers = 1\neviction = \"oldest\"\n";
    let broken = "[kinds.broken]\ncommand = [\"no-such-program-anywhere\"]\nmin = 0\ncircuit_failures = 1\n";
    let (a, b) = (fake_kind("a", &[], "min = 0"), fake_kind("b", &[], "min = 0"));
    let server = Server::start(&format!("{pool}{a}{b}{broken}"));
    let mut client = server.client().await;
    for kind in ["a", "b"] {
        client.execute(Query { kind: kind.to_owned(), ..query(&json!(1)) }).await;
    }
    become_so(
        &server,
        &[
            (r#"remuda_evictions_total{kind="a",strategy="oldest"}"#, 1.0),
            (r#"remuda_evictions_total{kind="a",strategy="lru"}"#, 0.0),
            (r#"remuda_worker_exits_total{cause="evicted",kind="a"}"#, 1.0),
            (r#"remuda_serving{kind="broken"}"#, 1.0),
        ],
    );
    let doomed = Query { kind: "broken".to_owned(), ..query(&json!(1)) };
    assert!(client.execute(doomed.clone()).await.status.is_some());
    become_so(
        &server,
        &[
            (r#"remuda_circuit_state{kind="broken"}"#, 2.0),
            (r#"remuda_serving{kind="broken"}"#, 0.0),
            (r#"remuda_query_failures_total{kind="broken",reason="circuit_open"}"#, 1.0),
            (r#"remuda_query_results_total{kind="broken",outcome="rejected",type="none"}"#, 1.0),
        ],
    );
    client.submit(doomed).await.unwrap_err();
    become_so(&server, &[(r#"remuda_submit_refused_total{reason="circuit_open"}"#, 1.0)]);
}

#[tokio::test]
async fn refusals_move_their_metrics() {
    let queue = "[queue]\nmax_queries = 2\nmax_queries_per_owner = 1\n";
    let server = Server::start(&format!("{queue}{}", fake_kind("k", &[], "min = 1\nmax = 1")));
    let mut client = server.client().await;
    let hanging = streaming(&client, steps(&json!([{"message": 1}, "hang"]))).await;
    let owned = Query { owner: "o".to_owned(), priority: 5, ..query(&json!(1)) };
    let submit = |id: &str, query: Query| SubmitRequest { query_id: id.to_owned(), query: Some(query) };
    client.pool.submit(submit("first", owned.clone())).await.unwrap();
    for (query, reason) in [
        (submit("second", owned.clone()), "owner_queue_full"),
        (submit("first", Query { priority: 6, ..owned.clone() }), "conflict"),
        (submit("", Query { reject_if_busy: true, ..query(&json!(1)) }), "busy"),
        (submit("", Query { payload: "{".to_owned(), ..Default::default() }), "invalid"),
    ] {
        client.pool.submit(query).await.unwrap_err();
        become_so(&server, &[(&format!(r#"remuda_submit_refused_total{{reason="{reason}"}}"#), 1.0)]);
    }
    let unknown = Query { kind: "unknown".to_owned(), ..query(&json!(1)) };
    client.submit(unknown).await.unwrap_err();
    become_so(&server, &[(r#"remuda_submit_refused_total{reason="invalid"}"#, 2.0)]);
    let urgent = client.submit(query(&json!(2))).await.unwrap();
    client.submit(Query { priority: 9, ..query(&json!(3)) }).await.unwrap_err();
    become_so(&server, &[(r#"remuda_submit_refused_total{reason="queue_full"}"#, 1.0)]);
    client.submit(query(&json!(4))).await.unwrap();
    become_so(&server, &[(r#"remuda_query_failures_total{kind="k",reason="shed"}"#, 1.0)]);
    client.cancel(&urgent, "").await.unwrap();
    let hurried = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 });
    client.submit(Query { queue_timeout: hurried, ..query(&json!(5)) }).await.unwrap();
    become_so(&server, &[(r#"remuda_query_failures_total{kind="k",reason="deadline"}"#, 1.0)]);

    assert_eq!(run(&server, &["drain"]).0, 0);
    client.submit(query(&json!(1))).await.unwrap_err();
    become_so(
        &server,
        &[(r#"remuda_submit_refused_total{reason="drained"}"#, 1.0), (r#"remuda_serving{kind="k"}"#, 0.0)],
    );
    assert_eq!(run(&server, &["resume"]).0, 0);
    // It answers no ping, so that the server cannot know whether it has heard of the drain.
    let unaware = raw::connect(&server.grpc, &[]);
    assert!(raw::next_frame(&unaware).is_some(), "the server greets");
    server.signal(Signal::SIGTERM);
    server.logs("\"draining\"");
    let request = SubmitRequest { query_id: String::new(), query: Some(query(&json!(1))) };
    let taken: Option<SubmitResponse> = raw::unary(&unaware, 1, "/remuda.v1.WorkerPool/Submit", &request);
    assert_eq!(taken, None);
    become_so(&server, &[(r#"remuda_submit_refused_total{reason="draining"}"#, 1.0)]);
    assert_eq!(server.get("/livez").0, 200, "a server that drains is well");
    let request = CancelRequest { query_id: hanging, reason: String::new() };
    raw::unary::<CancelResponse>(&unaware, 3, "/remuda.v1.WorkerPool/Cancel", &request).expect("a drain takes cancels");
}

#[tokio::test]
async fn reload_brings_the_series_of_new_kinds_and_types() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let file = server.dir.path().join("remuda.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let more = format!("{config}\ntypes = [\"t\"]\n{}", fake_kind("more", &[], "min = 0\nmax = 3\ntypes = [\"u\"]"));
    std::fs::write(&file, more).unwrap();
    assert_eq!(run(&server, &["reload"]).0, 0);
    become_so(
        &server,
        &[
            (r#"remuda_query_results_total{kind="k",outcome="complete",type="t"}"#, 0.0),
            (r#"remuda_query_results_total{kind="more",outcome="complete",type="u"}"#, 0.0),
            (r#"remuda_cancel_seconds_count{kind="more",stage="sigkill"}"#, 0.0),
            (r#"remuda_workers_limit{kind="more",limit="max"}"#, 3.0),
        ],
    );
    std::fs::write(&file, config).unwrap();
    assert_eq!(run(&server, &["reload"]).0, 0);
    become_so(
        &server,
        &[(r#"remuda_workers_limit{kind="more",limit="max"}"#, 0.0), (r#"remuda_serving{kind="more"}"#, 0.0)],
    );
}
