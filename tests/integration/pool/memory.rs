//! Memory: the budget of the pool, and the limits of workers.

use remuda::api::proto::{DeathCause, Query};
use serde_json::{Value, json};

use crate::harness::{Gate, Server, eventually, eventually_async, fake_kind, query};

const MIB: usize = 1 << 20;

fn reserved(server: &Server) -> usize {
    server.metric_sum("remuda_memory_reserved_bytes") as usize / MIB
}

fn of_kind(kind: &str, about: Query) -> Query {
    Query { kind: kind.to_owned(), ..about }
}

/// Takes memory, then waits, then says which worker it was.
fn hungry(mib: usize, gate: &Gate) -> Value {
    json!({"steps": [{"allocate_mb": mib}, {"await_file": gate.path()}, "nonce"]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_admits_as_many_workers_as_fit_and_makes_room_for_others() {
    let small = fake_kind("small", &[], "min = 0\nmax = 8\nmemory = \"100MiB\"\nscale_up_after = \"0s\"");
    let large = fake_kind("large", &[], "min = 0\nmax = 8\nmemory = \"150MiB\"");
    let server = Server::start(&format!("[pool]\nmemory_budget = \"250MiB\"\n{small}{large}"));
    let mut client = server.client().await;
    assert_eq!(reserved(&server), 0);
    let gate = Gate::closed();
    let running: Vec<_> = (0..4).map(|_| client.begin(of_kind("small", gate.query()))).collect();
    server.until_busy("small", 2);
    server.until_waiting("small", 2);
    assert_eq!((server.worker_pids().len(), reserved(&server)), (2, 200));
    gate.open();
    for one in running {
        one.await.unwrap().result();
    }
    assert_eq!((server.worker_pids().len(), reserved(&server)), (2, 200), "no third one fits");

    // One of them makes enough room for a large one.
    client.served_by(of_kind("large", query(&json!(null)))).await;
    assert_eq!((server.in_service("small"), server.in_service("large"), reserved(&server)), (1, 1, 250));
    assert_eq!(server.all_exits("small"), [("evicted".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_has_grown_is_replaced_when_it_is_free() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1\nmemory_soft = \"64MiB\""));
    let mut client = server.client().await;
    let gate = Gate::closed();
    let running = client.begin(query(&hungry(100, &gate)));
    // The replacement is there before the old one is done.
    eventually("another worker", || (server.in_service("k") + server.workers_in("k", "evicting") == 2).then_some(()));
    assert_eq!(server.all_exits("k"), []);
    gate.open();
    assert_eq!(running.await.unwrap().result()["worker"], json!(1), "no query is lost");
    let certificate = client.certificate_of(1).await;
    assert_eq!(certificate.cause(), DeathCause::RecycledMemory);
    assert!(certificate.peak_rss_bytes as usize > 100 * MIB);
    assert_eq!(client.served_by(query(&json!(null))).await, 2);
    assert_eq!(server.in_service("k"), 1);
}

/// A query that takes 100 MiB of a worker that may have 64.
async fn outgrow(server: &Server) {
    let mut client = server.client().await;
    let ended = client.execute(query(&hungry(100, &Gate::closed()))).await;
    let error = ended.error();
    assert!(error.message.contains("of memory, more than its kind's memory_limit of 64.0 MiB"), "{}", error.message);
    let used = error.message.split("used ").nth(1).and_then(|rest| rest.split('.').next()).expect("how much it used");
    assert!((100..200).contains(&used.parse::<u32>().unwrap()), "{}", error.message);
    assert_eq!(error.certificate.expect("a certificate").cause(), DeathCause::OomLimit);
    // The query ends a moment before its worker is buried and counted.
    eventually("the exit to be counted", || (server.all_exits("k") == [("oom_limit".to_owned(), 1)]).then_some(()));
    client.served_by(query(&json!(null))).await;
}

#[tokio::test]
async fn worker_over_its_limit_is_stopped_and_its_query_says_why() {
    outgrow(&Server::start(&fake_kind("k", &[], "min = 1\nmax = 1\nmemory_limit = \"64MiB\""))).await;
}

#[tokio::test]
async fn worker_behind_a_shell_is_measured_too() {
    let worker = env!("CARGO_BIN_EXE_fake-worker");
    let command = format!("command = [\"sh\", \"-c\", \"{worker}; :\"]");
    let settings = "min = 1\nmax = 1\nmemory_limit = \"64MiB\"";
    let server = Server::start(&format!("[kinds.k]\n{command}\n{settings}\n"));
    let client = server.client().await;
    let shell = eventually_async("a measurement", || {
        let mut client = client.clone();
        async move { client.workers().await.pop().filter(|worker| worker.rss_bytes > 0) }
    })
    .await;
    assert!((shell.rss_bytes as usize) < 64 * MIB);
    outgrow(&server).await;
}
