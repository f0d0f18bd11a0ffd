//! Spans of a query in the log, and the trace context of its caller.

use remuda::api::proto::{ExecuteRequest, Query, event::Body, execute_response};
use serde_json::{Value, json};
use tonic::Request;

use crate::harness::{Client, Server, fake_kind, query};

pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const CALLER: &str = "b7ad6b7169203331";

pub(crate) fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// Executes a query with these headers and gives its result.
pub(crate) async fn execute_with(client: &mut Client, query: Query, headers: &[(&'static str, &str)]) -> Value {
    let mut request = Request::new(ExecuteRequest { query_id: String::new(), query: Some(query) });
    for (name, value) in headers {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    let mut stream = client.pool.execute(request).await.unwrap().into_inner();
    let mut result = Value::Null;
    while let Some(response) = stream.message().await.unwrap() {
        if let Some(execute_response::Body::Event(event)) = response.body
            && let Some(Body::Complete(complete)) = event.body
        {
            result = serde_json::from_str(&complete.result).unwrap();
        }
    }
    result
}

fn show_frame() -> Query {
    query(&json!({"steps": ["frame"]}))
}

#[tokio::test]
async fn worker_gets_the_callers_trace_context() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let parent = traceparent();
    let frame = execute_with(&mut client, show_frame(), &[("traceparent", &parent), ("tracestate", "a=1")]).await;
    // Spans of ours are not exported, so the worker's have the caller's for a parent.
    assert_eq!(frame["traceparent"], parent);
    for without in [&[][..], &[("traceparent", "00-nonsense")], &[("traceparent", &parent), ("traceparent", &parent)]] {
        let frame = execute_with(&mut client, show_frame(), without).await;
        assert_eq!(frame.get("traceparent"), None, "{without:?}");
    }
}

#[tokio::test]
async fn log_line_about_an_attempt_names_its_query() {
    let server = Server::start_with(&fake_kind("k", &[], "min = 1\nmax = 1"), |command| {
        command.args(["--log", "debug"]);
    });
    let mut client = server.client().await;
    execute_with(&mut client, show_frame(), &[("traceparent", &traceparent())]).await;
    server.logs("query over");
    let lines = server.log_lines();
    let told = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message).unwrap().clone();
    let dispatched = told("query dispatched");
    let names: Vec<_> = dispatched["spans"].as_array().unwrap().iter().map(|span| span["name"].clone()).collect();
    assert_eq!(names, ["rpc", "query", "attempt"], "{dispatched}");
    let attempt = &dispatched["span"];
    assert_eq!((&attempt["kind"], &attempt["worker"], &attempt["attempt"]), (&json!("k"), &json!(1), &json!(1)));
    assert_eq!(attempt["trace"], TRACE);
    let over = told("query over");
    assert_eq!((&over["level"], &over["fields"]["state"]), (&json!("DEBUG"), &json!("complete")), "{over}");
    assert_eq!(over["span"]["query"], attempt["query"]);
}

#[tokio::test]
async fn warning_names_its_query_and_a_good_query_is_not_logged_at_the_usual_level() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.execute(query(&json!({"fine": true}))).await;
    let crashed = client.execute(query(&json!({"steps": [{"exit": 3}]}))).await;
    let line: Value = serde_json::from_str(&server.logs("exited with code 3")).unwrap();
    assert_eq!((&line["level"], &line["span"]["query"]), (&json!("WARN"), &json!(crashed.query_id)), "{line}");
    let about_queries = server.log_lines().into_iter().filter(|line| line["span"]["query"].is_string());
    assert_eq!(about_queries.count(), 1);
}
