//! A full pool makes room for a kind without a worker by evicting an idle worker, never a busy one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use remuda::api::proto::{DeathCause, Query, QueryState};
use serde_json::json;

use crate::harness::{Client, Gate, Server, fake_kind, query};

fn two_kinds(pool: &str) -> Server {
    let settings = "min = 0\nmax = 2\nscale_up_after = \"0s\"";
    let kinds = ["a", "b"].map(|name| fake_kind(name, &[], settings)).concat();
    Server::start(&format!("[pool]\nmax_workers = 2\n{pool}\n{kinds}"))
}

fn of_kind(kind: &str, about: Query) -> Query {
    Query { kind: kind.to_owned(), ..about }
}

fn plain(kind: &str) -> Query {
    of_kind(kind, query(&json!({"steps": ["nonce"]})))
}

/// Has kind `a` take both places; its workers idle afterwards.
async fn fill(server: &Server, client: &Client) {
    let gate = Gate::closed();
    let running = [(); 2].map(|()| client.begin(of_kind("a", gate.query())));
    server.until_busy("a", 2);
    gate.open();
    for one in running {
        one.await.unwrap().result();
    }
    server.until_ready("a", 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_worker_that_the_strategy_picks_makes_room_and_the_query_is_served() {
    for strategy in ["lru", "oldest", "least_used"] {
        let server = two_kinds(&format!("eviction = \"{strategy}\""));
        let mut client = server.client().await;
        fill(&server, &client).await;
        let mut used = Vec::new();
        for _ in 0..3 {
            used.push(client.served_by(plain("a")).await);
            server.until_ready("a", 2);
        }
        assert_eq!((used[0], used[0] == used[1]), (used[2], false), "in rotation: {used:?}");
        let expected = if strategy == "oldest" { used[0].min(used[1]) } else { used[1] };

        assert!(client.served_by(plain("b")).await > 2, "a new worker");
        assert_eq!(client.cause_of(expected).await, DeathCause::Evicted, "{strategy}");
        let series = format!("remuda_evictions_total{{kind=\"a\",strategy=\"{strategy}\"}}");
        assert_eq!(server.metric(&series) as usize, 1);
        assert_eq!(server.all_exits("a"), [("evicted".to_owned(), 1)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_worker_is_never_evicted() {
    let server = two_kinds("");
    let mut client = server.client().await;
    let gates = [Gate::closed(), Gate::closed()];
    let busy = [0, 1].map(|at: usize| client.begin(of_kind("a", gates[at].query())));
    server.until_busy("a", 2);
    let id = client.submit(plain("b")).await.unwrap();
    client.two_ticks().await;
    assert_eq!(client.state(&id).await, QueryState::Pending);
    assert_eq!((server.workers_in("a", "processing"), server.all_exits("a")), (2, vec![]));

    gates[0].open();
    client.read_all(&id).await;
    assert_eq!(client.state(&id).await, QueryState::Complete);
    gates[1].open();
    for one in busy {
        one.await.unwrap().result();
    }
    assert_eq!(server.exits("a", "evicted"), 1, "the one that was done first made room");
}

#[tokio::test]
async fn kind_keeps_its_minimum_though_another_has_no_worker() {
    let kinds = [fake_kind("a", &[], "min = 2\nmax = 2"), fake_kind("b", &[], "min = 0\nmax = 2")].concat();
    let server = Server::start(&format!("[pool]\nmax_workers = 2\n{kinds}"));
    server.until_ready("a", 2);
    let mut client = server.client().await;
    let id = client.submit(plain("b")).await.unwrap();
    client.two_ticks().await;
    assert_eq!(client.state(&id).await, QueryState::Pending);
    assert_eq!((server.in_service("a"), server.all_exits("a")), (2, vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kind_without_a_worker_gets_one_though_the_others_are_never_idle() {
    let server = two_kinds("");
    let client = server.client().await;
    let enough = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, enough) = (client.clone(), enough.clone());
            tokio::spawn(async move {
                while !enough.load(Relaxed) {
                    client.execute(of_kind("a", query(&json!({"steps": [{"sleep_ms": 5}, "nonce"]})))).await.result();
                }
            })
        })
        .collect();
    server.until_busy("a", 2);
    // Every call of this client has a deadline, and so this one does.
    client.clone().served_by(plain("b")).await;
    enough.store(true, Relaxed);
    for one in load {
        one.await.unwrap();
    }
}
