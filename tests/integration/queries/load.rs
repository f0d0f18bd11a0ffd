//! Many clients at once.

use std::collections::HashMap;

use serde_json::json;

use crate::harness::{Server, fake_kind, query};

const QUERIES: usize = 10_000;
const CLIENTS: usize = 64;
const WORKERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_queries_each_get_their_own_answer_in_even_rotation() {
    let server = Server::start(&fake_kind("k", &[], "min = 8\nmax = 8"));
    let client = server.client().await;
    let clients = (0..CLIENTS).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let mut workers = Vec::new();
            for n in (number..QUERIES).step_by(CLIENTS) {
                let nonce = format!("{number}/{n}");
                let result = client.execute(query(&json!({"nonce": nonce, "steps": ["nonce"]}))).await.result();
                assert_eq!(result["nonce"], json!(nonce), "an answer went to the wrong query");
                assert_eq!(result["concurrent"], json!(1), "a worker had two queries at once");
                workers.push(result["worker"].as_u64().expect("a worker's id"));
            }
            workers
        })
    });
    let mut by_worker: HashMap<u64, usize> = HashMap::new();
    for client in clients.collect::<Vec<_>>() {
        for worker in client.await.unwrap() {
            *by_worker.entry(worker).or_default() += 1;
        }
    }
    assert_eq!(by_worker.values().sum::<usize>(), QUERIES);
    assert_eq!(by_worker.len(), WORKERS, "nobody crashed and nobody was left out: {by_worker:?}");
    // Rotation gives each worker its turn; how long a turn takes is up to the machine, so the shares are not equal.
    let share = QUERIES / WORKERS;
    for (worker, count) in &by_worker {
        assert!((share / 2..share * 2).contains(count), "worker {worker} served {count}: {by_worker:?}");
    }
}

#[tokio::test]
async fn single_queries_visit_the_workers_in_rotation() {
    let server = Server::start(&fake_kind("k", &[], "min = 4\nmax = 4"));
    let mut client = server.client().await;
    crate::harness::eventually("all workers to be ready", || {
        (server.metric(r#"remuda_workers{kind="k",state="ready"}"#) as usize == 4).then_some(())
    });
    let mut order = Vec::new();
    for _ in 0..12 {
        let result = client.execute(query(&json!({"nonce": 1, "steps": ["nonce"]}))).await.result();
        order.push(result["worker"].as_u64().unwrap());
        // The answer may be read before the worker is back in the rotation.
        crate::harness::eventually("the worker to be ready again", || {
            (server.metric(r#"remuda_workers{kind="k",state="ready"}"#) as usize == 4).then_some(())
        });
    }
    assert_eq!(order[0..4], order[4..8]);
    assert_eq!(order[4..8], order[8..12]);
    let mut once = order[0..4].to_vec();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 4);
}
