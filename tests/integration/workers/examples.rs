//! The example workers, run with their own configs; and the README's copies of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use remuda::api::proto::{CancelFound, Query, QueryState};
use serde_json::json;

use crate::harness::{Server, TestEvent, eventually_async, query, skip};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Counts, fails, is cancelled and counts again.
async fn serves(name: &str) {
    let server = Server::start_file(&example(name).join("remuda.toml"));
    let mut client = server.client().await;
    let count = |payload| Query { r#type: "count".to_owned(), ..query(&payload) };
    let ended = client.execute(count(json!({"to": 3}))).await;
    assert_eq!(
        ended.test_events(),
        [
            TestEvent::Message(json!({"n": 1})),
            TestEvent::Message(json!({"n": 2})),
            TestEvent::Message(json!({"n": 3})),
            TestEvent::Complete(json!({"counted": 3})),
        ]
    );
    let failed = client.execute(count(json!({"to": "many"}))).await;
    assert!(matches!(failed.last(), TestEvent::Error(_)), "{failed:?}");
    let id = client.submit(count(json!({"to": 100_000, "delay": 0.01}))).await.unwrap();
    eventually_async("the query to stream", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move { (client.state(&id).await == QueryState::Streaming).then_some(()) }
    })
    .await;
    assert_eq!(client.cancel(&id, "enough").await.unwrap().found(), CancelFound::Running);
    assert_eq!(client.read_all(&id).await.last(), Some(&TestEvent::Cancelled("enough".to_owned())));
    let again = client.execute(count(json!({"to": 1}))).await;
    assert_eq!(again.result(), json!({"counted": 1}));
    let exits = server.metric(r#"remuda_worker_exits_total{cause="cancel",kind="count"}"#);
    assert!(exits.abs() < f64::EPSILON, "the cancelled worker lives on");
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn python_worker_serves() {
    if is_there("python3") { serves("python-worker").await } else { skip("python3") }
}

#[tokio::test]
async fn node_worker_serves() {
    if is_there("node") { serves("node-worker").await } else { skip("node") }
}

#[test]
fn example_workers_are_short() {
    for file in ["python-worker/worker.py", "node-worker/worker.js"] {
        let text = std::fs::read_to_string(example(file)).unwrap();
        assert!(text.lines().count() < 40, "{file} has {} lines", text.lines().count());
    }
}

#[test]
fn readme_shows_the_python_worker_as_it_is() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for (mark, language, file) in [("python-worker", "python", "worker.py"), ("python-config", "toml", "remuda.toml")] {
        let text = std::fs::read_to_string(example("python-worker").join(file)).unwrap();
        let block = format!("<!-- {mark} -->\n```{language}\n{text}```\n<!-- /{mark} -->");
        assert!(readme.contains(&block), "the README does not show examples/python-worker/{file} as it is");
    }
}
