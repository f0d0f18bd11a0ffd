//! Queries of one key or session come back to the worker that served them before, as far as the kind asks for it.

use remuda::api::proto::Query;
use serde_json::json;

use crate::harness::{Client, Gate, Server, fake_kind, query};

fn server(affinity: &str) -> Server {
    let server = Server::start(&fake_kind("k", &[], &format!("min = 3\nmax = 3\naffinity = \"{affinity}\"")));
    server.until_ready("k", 3);
    server
}

fn for_key(key: &str, about: Query) -> Query {
    Query { key: key.to_owned(), ..about }
}

fn plain(key: &str) -> Query {
    for_key(key, query(&json!(null)))
}

/// The workers that serve the next queries of a key, each sent when all workers are free.
async fn row(server: &Server, client: &mut Client, key: &str, count: usize) -> Vec<u64> {
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(client.served_by(plain(key)).await);
        server.until_ready("k", 3);
    }
    workers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefer_affinity_uses_the_same_worker_if_it_is_free_and_another_if_not() {
    let server = server("prefer");
    let mut client = server.client().await;
    let workers = row(&server, &mut client, "a", 4).await;
    assert!(workers.iter().all(|worker| *worker == workers[0]), "{workers:?}");
    assert_ne!(row(&server, &mut client, "b", 1).await[0], workers[0], "the rotation goes on for others");

    let gate = Gate::closed();
    let long = client.begin(for_key("a", gate.query()));
    server.until_busy("k", 1);
    assert_ne!(client.served_by(plain("a")).await, workers[0]);
    gate.open();
    assert_eq!(long.await.unwrap().result()["worker"], json!(workers[0]));
}

#[tokio::test]
async fn affinity_off_ignores_the_key() {
    let server = server("off");
    let mut client = server.client().await;
    let mut workers = row(&server, &mut client, "a", 3).await;
    workers.sort_unstable();
    assert_eq!(workers, [1, 2, 3], "each in turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_affinity_waits_for_the_worker_of_a_key_as_long_as_it_lives() {
    let server = server("strict");
    let mut client = server.client().await;
    let gate = Gate::closed();
    let first = client.begin(for_key("a", gate.query()));
    server.until_busy("k", 1);
    let second = client.begin(for_key("a", query(&json!({"steps": ["nonce"]}))));
    server.until_waiting("k", 1);
    // Others pass it by.
    for key in ["b", "", "c"] {
        client.served_by(plain(key)).await;
    }
    assert!(!second.is_finished());
    gate.open();
    let own = first.await.unwrap().result()["worker"].clone();
    assert_eq!(second.await.unwrap().result()["worker"], own);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_affinity_goes_elsewhere_when_the_worker_of_a_key_has_died() {
    let server = server("strict");
    let mut client = server.client().await;
    let gate = Gate::closed();
    let steps = json!({"steps": [{"message": 1}, {"await_file": gate.path()}, {"exit": 1}]});
    let dying = client.begin(for_key("a", query(&steps)));
    server.until_busy("k", 1);
    let waiting = client.begin(for_key("a", query(&json!({"steps": ["nonce"]}))));
    server.until_waiting("k", 1);
    gate.open();
    let dead = dying.await.unwrap().error().certificate.expect("a certificate").worker_id;
    let other = waiting.await.unwrap().result()["worker"].as_u64().unwrap();
    assert_ne!(other, dead);
    assert_eq!(client.served_by(plain("a")).await, other, "which is the key's own from now on");
}

#[tokio::test]
async fn session_that_a_worker_reports_leads_back_to_it() {
    for affinity in ["prefer", "strict"] {
        let server = server(affinity);
        let mut client = server.client().await;
        let told = client.execute(query(&json!({"steps": [{"session": "s-1"}, "nonce"]}))).await;
        let holder = told.result()["worker"].as_u64().unwrap();
        for _ in 0..3 {
            server.until_ready("k", 3);
            let next = Query { session_id: "s-1".to_owned(), ..query(&json!(null)) };
            assert_eq!(client.served_by(next).await, holder, "{affinity}");
        }
    }
}

#[tokio::test]
async fn session_stands_for_the_key_of_its_worker_in_a_keyed_kind() {
    let server = Server::start(&fake_kind("k", &[], "keyed = true\nmin = 0\nmax = 4"));
    let mut client = server.client().await;
    let steps = json!({"steps": [{"session": "s-1"}, "nonce"]});
    let holder = client.execute(for_key("a", query(&steps))).await.result()["worker"].as_u64().unwrap();
    let next = Query { session_id: "s-1".to_owned(), ..query(&json!(null)) };
    assert_eq!(client.served_by(next).await, holder);
    let unknown = Query { session_id: "s-2".to_owned(), ..query(&json!(null)) };
    assert!(client.submit(unknown).await.unwrap_err().message().contains("needs a key"));
}
