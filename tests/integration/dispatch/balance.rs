//! The choice among several free workers. The exact orders are in the tests of `pool::worker_data`.

use serde_json::json;

use crate::harness::{Server, fake_kind, query, run};

/// Gives three workers, of which the first has run three queries, one query each at the same time.
async fn order(balance: &str) -> Vec<u64> {
    let server = Server::start(&fake_kind("k", &[], &format!("min = 1\nmax = 3\nbalance = \"{balance}\"")));
    let mut client = server.client().await;
    for _ in 0..3 {
        client.execute(query(&json!(1))).await;
    }
    for workers in [2, 3] {
        assert_eq!(run(&server, &["scale", "k", &workers.to_string()]).0, 0);
        client.all_free(workers).await;
    }
    let mut order = Vec::new();
    for gate in ["a", "b", "c"] {
        let gate = server.gate(gate);
        order.push(client.occupy(&gate).await.1);
    }
    order
}

#[tokio::test]
async fn round_robin_begins_with_the_worker_that_has_waited_longest() {
    assert_eq!(order("round_robin").await, [1, 2, 3]);
}

#[tokio::test]
async fn least_loaded_begins_with_workers_that_have_run_nothing() {
    assert_eq!(order("least_loaded").await, [2, 3, 1]);
}

#[tokio::test]
async fn most_recent_begins_with_the_worker_that_has_waited_least() {
    assert_eq!(order("most_recent").await, [3, 2, 1]);
}
