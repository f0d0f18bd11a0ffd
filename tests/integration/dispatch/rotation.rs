//! Rotation: each worker in its turn, before and after a crowd.

use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::{Client, Server, fake_kind, query};

const WORKERS: usize = 6;

async fn one_by_one(server: &Server, client: &mut Client, rounds: usize) -> Vec<u64> {
    let mut order = Vec::new();
    for _ in 0..rounds * WORKERS {
        order.push(client.served_by(query(&json!(null))).await);
        // The answer may be read before the worker is back in the rotation.
        server.until_ready("k", WORKERS);
    }
    order
}

#[track_caller]
fn assert_rotation(order: &[u64]) {
    let (first, rest) = order.split_at(WORKERS);
    let mut once = first.to_vec();
    once.sort_unstable();
    assert_eq!(once, (1..=WORKERS as u64).collect::<Vec<_>>());
    assert!(rest.chunks(WORKERS).all(|round| round == first), "{order:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_is_exact_before_and_after_a_crowd_and_even_within_it() {
    let settings = format!("min = {WORKERS}\nmax = {WORKERS}\nidle_after = \"1h\"");
    let server = Server::start(&fake_kind("k", &[], &settings));
    server.until_ready("k", WORKERS);
    let mut client = server.client().await;
    assert_rotation(&one_by_one(&server, &mut client, 5).await);

    // Fewer clients than workers: someone is always ready, and it is the rotation that shares out the work.
    let crowd: Vec<_> = (0..WORKERS - 2)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let mut workers = Vec::new();
                for _ in 0..300 {
                    workers.push(client.served_by(query(&json!(null))).await);
                }
                workers
            })
        })
        .collect();
    let mut shares: BTreeMap<u64, usize> = BTreeMap::new();
    for client in crowd {
        for worker in client.await.unwrap() {
            *shares.entry(worker).or_default() += 1;
        }
    }
    let even = 300 * (WORKERS - 2) / WORKERS;
    assert_eq!(shares.len(), WORKERS, "{shares:?}");
    // A worker that the machine keeps waiting misses its turns meanwhile.
    assert!(shares.values().all(|share| (even / 2..even * 2).contains(share)), "{shares:?}");

    server.until_ready("k", WORKERS);
    assert_rotation(&one_by_one(&server, &mut client, 5).await);
}
