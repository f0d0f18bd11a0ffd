//! Workers are replaced by age and by queries without a gap in service.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::json;

use crate::harness::{Client, DEADLINE, Server, eventually, fake_kind, query};

/// Runs so many queries one after the other and gives the workers that served them. In between, and while others run theirs,
/// there must always be so many workers in service.
async fn watched(server: &Server, client: &mut Client, queries: usize, least: usize) -> Vec<u64> {
    let mut workers = Vec::new();
    for _ in 0..queries {
        workers.push(client.served_by(query(&json!(null))).await);
        let in_service = server.in_service("k");
        assert!(in_service >= least, "only {in_service} workers in service");
    }
    workers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_is_replaced_after_its_queries_by_one_that_is_ready() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2\nmax_queries = 9"));
    server.until_ready("k", 2);
    let mut client = server.client().await;
    let others = tokio::spawn({
        let mut client = client.clone();
        async move {
            for _ in 0..100 {
                client.served_by(query(&json!(null))).await;
            }
        }
    });
    let workers = watched(&server, &mut client, 100, 2).await;
    others.await.unwrap();
    assert!(workers.iter().collect::<BTreeSet<_>>().len() > 2, "{workers:?}");
    let exits = server.all_exits("k");
    assert!(matches!(&exits[..], [(cause, 2..)] if cause == "recycled_queries"), "{exits:?}");
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_is_replaced_at_its_age_by_one_that_is_ready() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1\nmax_age = \"300ms\""));
    server.until_ready("k", 1);
    let mut client = server.client().await;
    eventually("workers to be replaced for their age", || {
        assert!(server.in_service("k") >= 1);
        (server.exits("k", "recycled_age") >= 3).then_some(())
    });
    watched(&server, &mut client, 20, 1).await;
    let exits = server.all_exits("k");
    assert!(matches!(&exits[..], [(cause, 3..)] if cause == "recycled_age"), "{exits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_for_one_query_is_never_used_twice() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 3\nmax_queries = 1\nscale_up_after = \"10ms\""));
    let client = server.client().await;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let mut workers = Vec::new();
                for _ in 0..15 {
                    workers.push(client.served_by(query(&json!(null))).await);
                }
                workers
            })
        })
        .collect();
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for client in clients {
        for worker in client.await.unwrap() {
            *times.entry(worker).or_default() += 1;
        }
        assert!(server.worker_pids().len() <= 4, "one more than max at most");
    }
    assert_eq!(times.len(), 60, "{times:?}");
    eventually("all that were used to be gone", || (server.exits("k", "recycled_queries") == 60).then_some(()));
    eventually("the minimum to be there again", || (server.in_service("k") >= 2).then_some(()));
    assert_eq!(server.all_exits("k"), [("recycled_queries".to_owned(), 60)]);
}

#[tokio::test]
async fn full_pool_stops_the_old_worker_first_and_serves_every_query() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1\nmax_queries = 3");
    let server = Server::start(&format!("[pool]\nmax_workers = 1\n{kind}"));
    let mut client = server.client().await;
    let mut workers = BTreeSet::new();
    let begun = Instant::now();
    while workers.len() < 4 {
        assert!(begun.elapsed() < DEADLINE, "{workers:?}");
        workers.insert(client.served_by(query(&json!(null))).await);
        assert!(server.worker_pids().len() <= 1);
    }
    assert!(server.all_exits("k").iter().all(|(cause, _)| cause == "recycled_queries"));
}
