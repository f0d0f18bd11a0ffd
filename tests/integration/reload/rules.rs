//! Reloads that change keys, affinity and limits while queries wait: no query is left behind.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use remuda::api::proto::{self, DeathCause, Query};
use serde_json::json;

use crate::{
    harness::{Client, Gate, Server, eventually, fake_kind, query},
    integration::reload::config::workers_up,
};

fn for_key(key: &str, about: Query) -> Query {
    Query { key: key.to_owned(), ..about }
}

fn plain(key: &str) -> Query {
    for_key(key, query(&json!({"steps": ["nonce"]})))
}

async fn ends(running: tokio::task::JoinHandle<crate::harness::Ended>) -> u64 {
    let ended = tokio::time::timeout(Duration::from_secs(30), running).await.expect("the query ends").unwrap();
    ended.result()["worker"].as_u64().expect("a worker's id")
}

fn sized(rule: &str) -> String {
    fake_kind("k", &[], &format!("min = 2\nmax = 3\n{rule}"))
}

/// At no time have two workers the same key.
async fn no_key_twice(client: &mut Client) {
    let workers = client.workers().await;
    let mut keys: BTreeMap<&str, u64> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| !worker.key.is_empty()) {
        assert!(!worker.key.starts_with("key "), "{worker:?}");
        assert_eq!(keys.insert(&worker.key, worker.worker_id), None, "two workers of one key: {workers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kind_becomes_keyed_under_load_and_every_query_is_served_by_its_keys_own_worker() {
    for rule in ["affinity = \"prefer\"", "affinity = \"strict\""] {
        let server = Server::start(&sized(rule));
        let mut client = server.client().await;
        workers_up(&client, 2).await;
        let gate = Gate::closed();
        let running: Vec<_> = ["a", "b", "c"].map(|key| client.begin(for_key(key, gate.query()))).into();
        server.until_busy("k", 3);
        let waiting: Vec<_> =
            ["a", "b", "c", "d"].iter().cycle().take(16).map(|key| client.begin(plain(key))).collect();
        server.until_waiting("k", 16);
        server.rewrite(&sized("keyed = true"));
        assert!(client.reload(false).await.unwrap().applied);
        let enough = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn({
            let (mut client, enough) = (client.clone(), enough.clone());
            async move {
                while !enough.load(Relaxed) {
                    no_key_twice(&mut client).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        gate.open();
        for one in running.into_iter().chain(waiting) {
            ends(one).await;
        }
        let seen = client.execute(for_key("new", query(&json!({"steps": ["env"]})))).await.result();
        let told = seen["env"]["REMUDA_KEY"].as_str();
        assert!(told.is_none_or(|key| key == "new"), "{rule}: {told:?}");
        assert_eq!(client.served_by(plain("new")).await, client.served_by(plain("new")).await);
        enough.store(true, Relaxed);
        watching.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_waited_for_their_own_worker_are_anyones_when_the_rule_is_gone() {
    for rule in ["affinity = \"strict\"", "keyed = true"] {
        let server = Server::start(&sized(rule));
        let mut client = server.client().await;
        workers_up(&client, 2).await;
        let gate = Gate::closed();
        let running = client.begin(for_key("a", gate.query()));
        server.until_busy("k", 1);
        let waiting = client.begin(plain("a"));
        server.until_waiting("k", 1);
        server.rewrite(&sized("affinity = \"prefer\""));
        assert!(client.reload(false).await.unwrap().applied);
        let other = ends(waiting).await;
        gate.open();
        assert_ne!(ends(running).await, other, "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_worker_keeps_no_session_to_itself() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2\naffinity = \"strict\""));
    let mut client = server.client().await;
    client.all_free(2).await;
    let gate = Gate::closed();
    let steps = json!({"steps": [{"message": 1}, {"await_file": gate.path()}, {"session": "s-1"}, "nonce"]});
    let running = client.begin(query(&steps));
    server.until_busy("k", 1);
    let busy = client.workers().await.into_iter().find(|worker| !worker.query_id.is_empty()).unwrap().worker_id;
    client.admin.drain_worker(proto::DrainWorkerRequest { worker_id: busy }).await.unwrap();
    gate.open();
    assert_eq!(ends(running).await, busy);
    let next = Query { session_id: "s-1".to_owned(), ..query(&json!({"steps": ["nonce"]})) };
    assert_ne!(ends(client.begin(next.clone())).await, busy);
    client.all_free(2).await;
    assert_ne!(ends(client.begin(Query { reject_if_busy: true, ..next })).await, busy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_worker_is_not_evicted() {
    let needy = fake_kind("needy", &[], "min = 0\nmax = 1");
    let server = Server::start(&format!("[pool]\nmax_workers = 2\n{}{needy}", fake_kind("k", &[], "min = 0\nmax = 2")));
    let mut client = server.client().await;
    let of_k = |about: Query| Query { kind: "k".to_owned(), ..about };
    let gates = [Gate::closed(), Gate::closed()];
    let first = client.begin(of_k(gates[0].query()));
    server.until_busy("k", 1);
    let second = client.begin(of_k(gates[1].query()));
    server.until_busy("k", 2);
    let waiting = client.begin(Query { kind: "needy".to_owned(), ..query(&json!({"steps": ["nonce"]})) });
    // Only then would another kind's worker give way.
    let oldest = r#"remuda_queue_oldest_seconds{kind="needy"}"#;
    eventually("the query to have waited long", || (server.metric(oldest) > 5.5).then_some(()));
    client.admin.drain_worker(proto::DrainWorkerRequest { worker_id: 1 }).await.unwrap();
    gates[0].open();
    assert_eq!(ends(first).await, 1);
    client.two_ticks().await;
    assert_eq!(client.worker(1).await.certificate, None, "it stays");
    gates[1].open();
    ends(second).await;
    ends(waiting).await;
    assert_eq!(client.cause_of(2).await, DeathCause::Evicted);
    assert_eq!(client.worker(1).await.certificate, None, "it stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lower_maximum_of_the_pool_holds_as_workers_become_free() {
    let config = |max_workers: usize| {
        format!(
            "[pool]\nmax_workers = {max_workers}\n{}",
            fake_kind("k", &[], "min = 1\nmax = 4\nscale_up_after = \"0s\"")
        )
    };
    let server = Server::start(&config(4));
    let mut client = server.client().await;
    let idle = Gate::closed();
    let busy = Gate::closed();
    let short: Vec<_> = (0..2).map(|_| client.begin(idle.query())).collect();
    server.until_busy("k", 2);
    let long: Vec<_> = (0..2).map(|_| client.begin(busy.query())).collect();
    server.until_busy("k", 4);
    idle.open();
    for one in short {
        ends(one).await;
    }
    server.rewrite(&config(1));
    assert!(client.reload(false).await.unwrap().applied);
    workers_up(&client, 2).await;
    busy.open();
    for one in long {
        ends(one).await;
    }
    workers_up(&client, 1).await;
    assert_eq!(server.all_exits("k"), [("evicted".to_owned(), 3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_kind_gets_a_worker_though_another_keeps_the_whole_pool_busy() {
    let pool = |more: &str| {
        let busy = fake_kind("busy", &[], "min = 0\nmax = 2\nscale_up_after = \"0s\"");
        format!("[pool]\nmax_workers = 2\n{busy}{more}")
    };
    let server = Server::start(&pool(""));
    let mut client = server.client().await;
    let enough = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (mut client, enough) = (client.clone(), enough.clone());
            tokio::spawn(async move {
                while !enough.load(Relaxed) {
                    let about = query(&json!({"steps": [{"sleep_ms": 100}, {"complete": 1}]}));
                    client.execute(Query { kind: "busy".to_owned(), ..about }).await.result();
                }
            })
        })
        .collect();
    eventually("the pool to be full", || (server.in_service("busy") == 2).then_some(()));
    server.rewrite(&pool(&fake_kind("warm", &[], "min = 1\nmax = 1")));
    assert!(client.reload(false).await.unwrap().applied);
    eventually("the kind to be warm", || (server.in_service("warm") == 1).then_some(()));
    enough.store(true, Relaxed);
    for one in clients {
        one.await.unwrap();
    }
}
