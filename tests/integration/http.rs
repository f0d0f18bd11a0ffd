//! The HTTP side.

use serde_json::{Value, json};

use crate::harness::{Server, eventually, fake_kind, query};

#[tokio::test]
async fn metrics_tell_what_happened() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2"));
    let mut client = server.client().await;
    client.execute(query(&json!(1))).await;
    client.execute(query(&json!({"steps": [{"error": {"error": "no"}}]}))).await;
    client.execute(query(&json!({"steps": [{"exit": 9}]}))).await;
    eventually("the pool to be back at its size", || {
        (server.metric(r#"remuda_workers{kind="k",state="ready"}"#) as u32 == 2).then_some(())
    });
    for (series, value) in [
        (r#"remuda_query_results_total{kind="k",outcome="complete",type="none"}"#, 1.0),
        (r#"remuda_query_results_total{kind="k",outcome="error",type="none"}"#, 2.0),
        (r#"remuda_query_results_total{kind="k",outcome="cancelled",type="none"}"#, 0.0),
        (r#"remuda_queries{kind="k",state="error"}"#, 2.0),
        (r#"remuda_queue_depth{kind="k"}"#, 0.0),
        (r#"remuda_queue_wait_seconds_count{kind="k"}"#, 3.0),
        (r#"remuda_query_duration_seconds_count{kind="k"}"#, 3.0),
        (r#"remuda_worker_exits_total{cause="crash",kind="k"}"#, 1.0),
        (r#"remuda_worker_exits_total{cause="oom_kernel",kind="k"}"#, 0.0),
        (r#"remuda_worker_transitions_total{from="ready",kind="k",to="processing"}"#, 3.0),
        (r#"remuda_worker_transitions_total{from="processing",kind="k",to="failed"}"#, 1.0),
        (r#"remuda_worker_start_seconds_count{kind="k"}"#, 3.0),
        (r#"remuda_workers{kind="k",state="dead"}"#, 0.0),
        (r#"remuda_grpc_requests_total{code="OK",method="remuda.v1.WorkerPool/Execute"}"#, 1.0),
        (r#"remuda_grpc_requests_total{code="UNKNOWN",method="remuda.v1.WorkerPool/Execute"}"#, 1.0),
        (r#"remuda_grpc_requests_total{code="INTERNAL",method="remuda.v1.WorkerPool/Execute"}"#, 1.0),
    ] {
        eventually(series, || ((server.metric(series) - value).abs() < f64::EPSILON).then_some(()));
    }
}

#[tokio::test]
async fn readiness_follows_the_pool_and_liveness_the_process() {
    let server = Server::start(&fake_kind("k", &["--start", r#"["connect",{"sleep_ms":400},"ready"]"#], "min = 1"));
    let (code, body) = server.get("/readyz");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &body["serving"]), (503, &json!(false)));
    assert_eq!(body["reasons"], json!(["kind k has no worker yet: 1 starting"]));
    assert_eq!(server.get("/livez"), (200, "ok\n".to_owned()));
    eventually("the server to be ready", || (server.get("/readyz").0 == 200).then_some(()));
    assert_eq!(server.get("/nothing-here").0, 404);
    assert!(server.get("/").1.contains("/metrics"));
}
