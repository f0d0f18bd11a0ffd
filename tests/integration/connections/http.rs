//! The HTTP side.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Gate, Server, eventually, fake_kind, query};

#[tokio::test]
async fn metrics_report_what_happened() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2"));
    let mut client = server.client().await;
    // Of two workers that become ready while a query waits, one is reserved in vain, which counts as a transition too.
    client.all_free(2).await;
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
    let gate = Gate::closed();
    let start = json!(["connect", {"await_file": gate.path()}, "ready"]).to_string();
    let server = Server::start(&fake_kind("k", &["--start", &start], "min = 1"));
    let starting = eventually("the worker to be started", || {
        let (code, body) = server.get("/readyz");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((code, &body["serving"]), (503, &json!(false)));
        // In the first moments there is not even that.
        let soon = json!(["kind k has no worker yet: one is about to be started"]);
        (body["reasons"] != soon).then_some(body)
    });
    assert_eq!(starting["reasons"], json!(["kind k has no worker yet: 1 starting"]));
    assert_eq!(server.get("/livez"), (200, "ok\n".to_owned()));
    gate.open();
    eventually("the server to be ready", || (server.get("/readyz").0 == 200).then_some(()));
    assert!(server.get("/").1.contains("/metrics"));
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let server = Server::start(&fake_kind("k", &[], "min = 0"));
    let (code, text) = server.get("/nothing-here");
    assert_eq!(code, 404);
    assert!(text.starts_with("there is no /nothing-here here\n") && text.contains("/readyz"), "{text}");
    let (head, text) = ask(&server, "POST /metrics HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.to_lowercase().contains("\r\nallow: get,head"), "{head}");
    assert_eq!(text, "only GET and HEAD are served here\n");
    let (head, text) = ask(&server, "HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"), "{head}");
    assert_eq!(text, "");
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1_000_000));
    assert!(ask(&server, &huge).0.starts_with("HTTP/1.1 431 "), "a head has its limit");
    let endless = "POST /livez HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\nx";
    assert!(ask(&server, endless).0.starts_with("HTTP/1.1 405 "), "a body is not waited for");
    assert_eq!(server.get("/livez").0, 200);
}

/// Connections that say nothing, or not enough, or nothing more, fill all places and make room for those that want
/// something; what is left of them is dropped when its time is up.
#[test]
fn silent_connections_are_bounded_and_dropped() {
    let bound = "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmax_http_connections = 3\n";
    let server = Server::start(&format!("{bound}{}", fake_kind("k", &[], "min = 0")));
    let mut silent: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(&server.http).unwrap()).collect();
    for stream in silent.iter_mut().step_by(3) {
        // Some are closed already.
        let _ = stream.write_all(b"GET /met");
    }
    for stream in silent.iter_mut().skip(1).step_by(3) {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for _ in 0..10 {
        assert_eq!(server.get("/livez").0, 200);
    }
    for stream in &mut silent {
        let _ = stream.set_read_timeout(Some(DEADLINE));
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "the server closes it, in time: {ended:?}");
    }
}

/// Sends just this and gives the head and the body of the answer.
fn ask(server: &Server, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // It may have been refused before it is all there.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}
