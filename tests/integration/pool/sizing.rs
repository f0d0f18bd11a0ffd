//! The number of workers follows the load, with real processes.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Client, Ended, Gate, Server, eventually, fake_kind, query};

/// The server's decisions on the size of its only kind, as (from, to).
fn decisions(server: &Server) -> Vec<(u64, u64)> {
    let lines = server.log_lines();
    let scaling = lines.iter().filter(|line| line["fields"]["message"] == "scaling");
    let number = |line: &Value, name: &str| line["fields"][name].as_u64().unwrap();
    scaling.map(|line| (number(line, "from"), number(line, "to"))).collect()
}

/// Runs so many queries at the same time.
fn all_at_once(client: &Client, payload: &Value, count: usize) -> Vec<JoinHandle<Ended>> {
    (0..count).map(|_| client.begin(query(payload))).collect()
}

/// Each of them must be complete.
async fn results(running: Vec<JoinHandle<Ended>>) -> Vec<Value> {
    let mut results = Vec::new();
    for one in running {
        results.push(one.await.unwrap().result());
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_grows_with_its_load_holds_at_its_maximum_and_shrinks_to_its_minimum() {
    let settings = "min = 1\nmax = 6\nscale_up_after = \"10ms\"\nscale_down_after = \"300ms\"\nscale_down_step = 2";
    let server = Server::start(&fake_kind("k", &[], settings));
    server.until_ready("k", 1);
    let client = server.client().await;
    let gate = Gate::closed();
    let load = all_at_once(&client, &gate.payload(), 10);
    server.until_busy("k", 6);
    server.until_waiting("k", 4);
    gate.open();
    assert_eq!(results(load).await.len(), 10);
    eventually("the pool to shrink", || (server.exits("k", "scaled_down") == 5).then_some(()));
    assert_eq!((server.in_service("k"), server.worker_pids().len()), (1, 1));
    assert_eq!(server.all_exits("k"), [("scaled_down".to_owned(), 5)]);

    let decisions = decisions(&server);
    let turn = decisions.iter().position(|(from, to)| to < from).unwrap();
    let (up, down) = decisions.split_at(turn);
    assert!(up.iter().all(|(from, to)| from < to), "up: {decisions:?}");
    assert!(down.iter().all(|(from, to)| to < from && from - to <= 2), "then down by steps of two: {decisions:?}");
    assert_eq!((decisions[0].0, up.last().unwrap().1, down.last().unwrap().1), (0, 6, 1), "{decisions:?}");
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn burst_into_an_empty_kind_is_served_without_an_error() {
    let server = Server::start(&fake_kind("k", &[], "min = 0\nmax = 4\nscale_up_after = \"10ms\""));
    let client = server.client().await;
    let payload = json!({"steps": [{"sleep_ms": 20}, "nonce"]});
    assert_eq!(results(all_at_once(&client, &payload, 40)).await.len(), 40);
    assert!((1..=4).contains(&server.worker_pids().len()));
    assert_eq!(server.all_exits("k"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_without_a_query_for_its_time_to_live_goes_and_the_minimum_stays() {
    let settings = "min = 1\nmax = 3\nscale_up_after = \"0s\"\nidle_ttl = \"200ms\"\nscale_down_after = \"1h\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    server.until_ready("k", 1);
    let client = server.client().await;
    let gate = Gate::closed();
    let load = all_at_once(&client, &gate.payload(), 3);
    server.until_busy("k", 3);
    gate.open();
    results(load).await;
    eventually("idle workers to go", || (server.exits("k", "idle") == 2).then_some(()));
    eventually("one to stay", || (server.in_service("k") == 1).then_some(()));
    assert_eq!(server.all_exits("k"), [("idle".to_owned(), 2)]);
}
