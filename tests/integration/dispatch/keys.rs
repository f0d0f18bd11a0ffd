//! A keyed kind: one worker for each key, and a key's queries reach no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::{Duration, Instant},
};

use remuda::api::proto::Query;
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Gate, Server, eventually, fake_kind, query};

fn for_key(key: &str, about: Query) -> Query {
    Query { key: key.to_owned(), ..about }
}

fn plain(key: &str) -> Query {
    for_key(key, query(&json!({"steps": ["nonce"]})))
}

fn keyed(settings: &str) -> Server {
    Server::start(&fake_kind("k", &[], &format!("keyed = true\n{settings}")))
}

/// The key that the worker was started for, and its id.
async fn surroundings(client: &mut Client, key: &str) -> (Option<String>, u64) {
    let seen = client.execute(for_key(key, query(&json!({"steps": ["env"]})))).await.result();
    let variable = |name: &str| seen["env"][name].as_str().map(str::to_owned);
    (variable("REMUDA_KEY"), variable("REMUDA_WORKER_ID").unwrap().parse().unwrap())
}

#[tokio::test]
async fn queries_of_a_key_are_served_by_one_worker_and_by_no_other() {
    let server = keyed("min = 0\nmax = 8");
    let mut client = server.client().await;
    let mut by_key: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for _ in 0..5 {
        for key in ["a", "b", "c"] {
            by_key.entry(key).or_default().insert(client.served_by(plain(key)).await);
        }
    }
    assert!(by_key.values().all(|workers| workers.len() == 1), "{by_key:?}");
    let all: BTreeSet<u64> = by_key.values().flatten().copied().collect();
    assert_eq!(all.len(), 3, "{by_key:?}");
    for worker in client.workers().await {
        assert_eq!(by_key[worker.key.as_str()].first(), Some(&worker.worker_id));
    }
}

#[tokio::test]
async fn worker_that_is_started_for_a_key_is_told_the_key() {
    let server = keyed("min = 1\nmax = 8");
    server.until_ready("k", 1);
    let mut client = server.client().await;
    assert_eq!(surroundings(&mut client, "first").await, (None, 1), "a warm worker is bound when it gets a query");
    let (key, second) = surroundings(&mut client, "second").await;
    assert_eq!(key.as_deref(), Some("second"));
    assert_eq!(client.served_by(plain("first")).await, 1);
    assert_eq!(client.served_by(plain("second")).await, second);
}

#[tokio::test]
async fn query_without_a_key_is_refused_and_the_field_is_named() {
    let server = keyed("min = 0");
    let refused = server.client().await.submit(query(&json!(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let details = refused.get_error_details();
    let violations = &details.bad_request().expect("details name the field").field_violations;
    assert_eq!(violations.iter().map(|violation| violation.field.as_str()).collect::<Vec<_>>(), ["query.key"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_that_waits_for_its_busy_worker_does_not_hold_up_other_keys() {
    let server = keyed("min = 0\nmax = 2");
    let mut client = server.client().await;
    let gate = Gate::closed();
    let first = client.begin(for_key("a", gate.query()));
    server.until_busy("k", 1);
    let second = client.begin(Query { priority: 0, ..plain("a") });
    server.until_waiting("k", 1);
    for _ in 0..3 {
        client.served_by(Query { priority: 9, ..plain("b") }).await;
    }
    assert!(!second.is_finished());
    gate.open();
    let first = first.await.unwrap().result();
    assert_eq!(second.await.unwrap().result()["worker"], first["worker"]);
}

#[tokio::test]
async fn key_gets_another_worker_when_its_own_has_died() {
    let server = keyed("min = 0\nmax = 2");
    let mut client = server.client().await;
    let first = client.served_by(plain("a")).await;
    client.execute(for_key("a", query(&json!({"steps": [{"exit": 1}]})))).await.error();
    let second = client.served_by(plain("a")).await;
    assert_ne!(first, second);
    assert_eq!(client.served_by(plain("a")).await, second);
}

#[tokio::test]
async fn idle_worker_of_another_key_makes_room_at_the_kinds_maximum() {
    let server = keyed("min = 0\nmax = 1");
    let mut client = server.client().await;
    let mut workers = Vec::new();
    for key in ["a", "b", "a", "c"] {
        workers.push(client.served_by(plain(key)).await);
    }
    workers.dedup();
    assert_eq!(workers.len(), 4, "a worker is never given another key: {workers:?}");
    assert_eq!(server.all_exits("k"), [("evicted".to_owned(), 3)]);
}

const KEYS: usize = 50;

fn duration() -> Duration {
    let seconds = env::var("REMUDA_KEYS_SECONDS").ok().map(|text| text.parse().expect("a whole number of seconds"));
    Duration::from_secs(seconds.unwrap_or(10))
}

/// One client of one key: who served its queries, and how long the slowest took.
async fn client_of(key: String, mut client: Client, until: Instant) -> (Vec<u64>, Duration) {
    let mut workers = Vec::new();
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        let begun = Instant::now();
        let steps = json!({"key": key, "steps": [{"sleep_ms": fastrand::u8(0..5)}, "frame"]});
        let asked = client.execute(for_key(&key, query(&steps))).await;
        // The worker shows the frame that it got: it was for this key, and nobody else's.
        let frame = asked.result();
        assert_eq!((&frame["key"], &frame["payload"]["key"]), (&json!(key), &json!(key)));
        workers.push(client.served_by(plain(&key)).await);
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(u64::from(fastrand::u8(0..50)))).await;
    }
    (workers, slowest)
}

/// At no time are there too many workers, or two of one key.
async fn watch(mut client: Client, until: Instant) {
    while Instant::now() < until {
        let workers = client.workers().await;
        assert!(workers.len() <= 8, "{workers:?}");
        let mut keys: Vec<&str> =
            workers.iter().map(|worker| worker.key.as_str()).filter(|key| !key.is_empty()).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "two workers of one key: {keys:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_keys_share_eight_workers_and_no_worker_serves_two_of_them() {
    // Some start for no key in particular, and race for keys with those that are started for one.
    let server = keyed("min = 2\nmax = 8");
    let client = server.client().await;
    let until = Instant::now() + duration();
    let clients: Vec<_> =
        (0..KEYS).map(|key| tokio::spawn(client_of(format!("key {key}"), client.clone(), until))).collect();
    watch(client.clone(), until).await;
    let mut key_of: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut queries, mut slowest) = (0, Duration::ZERO);
    for (key, client) in clients.into_iter().enumerate() {
        let (workers, worst) = client.await.unwrap();
        assert!(!workers.is_empty());
        queries += workers.len() * 2;
        slowest = slowest.max(worst);
        for worker in workers {
            assert_eq!(*key_of.entry(worker).or_insert(key), key, "worker {worker} served two keys");
        }
    }
    let exits = server.all_exits("k");
    assert!(exits.iter().all(|(cause, _)| cause == "evicted"), "{exits:?}");
    assert!(server.exits("k", "evicted") > 0);
    assert!(server.worker_pids().len() <= 8);
    let summary: Value =
        json!({"queries": queries, "evicted": server.exits("k", "evicted"), "slowest": slowest.as_secs_f64()});
    eventually("the queue to be empty", || {
        (server.metric(r#"remuda_queue_depth{kind="k"}"#) as usize == 0).then_some(())
    });
    assert_eq!(server.stop_cleanly().code(), Some(0));
    tell(&summary);
}

/// For whoever runs it for longer and wants to know.
fn tell(summary: &Value) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "fifty keys over eight workers: {summary}");
}
