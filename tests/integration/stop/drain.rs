//! Workers and pools that take no queries for a while.

use remuda::api::proto::{self, Query, QueryState};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Server, TestEvent, Watcher, eventually_async, fake_kind, query, reason_of, run};

async fn drain(client: &mut Client, worker_id: u64) {
    client.admin.drain_worker(proto::DrainWorkerRequest { worker_id }).await.unwrap();
}

async fn resume(client: &mut Client, worker_id: u64) {
    client.admin.resume_worker(proto::ResumeWorkerRequest { worker_id }).await.unwrap();
}

#[tokio::test]
async fn drained_worker_gets_no_query_until_it_is_resumed() {
    let server = Server::start(&fake_kind("k", &[], "min = 2\nmax = 2"));
    let mut client = server.client().await;
    client.all_free(2).await;
    drain(&mut client, 1).await;
    drain(&mut client, 1).await;
    assert_eq!(client.served(4).await, [2; 4]);
    assert!(client.worker(1).await.worker.unwrap().drained);
    let (_, table, _) = run(&server, &["workers"]);
    assert!(table.contains("ready (drained)"), "{table}");
    resume(&mut client, 1).await;
    resume(&mut client, 1).await;
    let mut by = client.served(2).await;
    by.sort_unstable();
    assert_eq!(by, [1, 2]);

    // The same by the command.
    let (code, out, _) = run(&server, &["drain", "2"]);
    let text = "worker 2 gets no more queries; undo it with: remuda resume 2\n";
    assert_eq!((code, out.as_str()), (0, text));
    assert_eq!(client.served(3).await, [1; 3]);
    let (code, out, _) = run(&server, &["resume", "2"]);
    assert_eq!((code, out.as_str()), (0, "worker 2 gets queries\n"));
    assert!(client.served(2).await.contains(&2));
    assert_eq!(run(&server, &["drain", "2", "--json"]).1, "{\"done\":\"drain\",\"worker_id\":2}\n");
    assert_eq!(run(&server, &["resume", "2", "--json"]).1, "{\"done\":\"resume\",\"worker_id\":2}\n");
    assert_eq!(run(&server, &["drain", "2", "--reason", "x"]).0, 2);
}

#[tokio::test]
async fn busy_worker_ends_its_query_and_takes_no_other() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let gate = server.gate("a");
    let (running, worker) = client.occupy(&gate).await;
    let waiting = client.submit(query(&json!("waits"))).await.unwrap();
    drain(&mut client, worker).await;
    std::fs::write(&gate, "").unwrap();
    assert!(matches!(client.read_all(&running).await.last(), Some(TestEvent::Complete(_))));
    client.all_free(1).await;
    assert_eq!(client.state(&waiting).await, QueryState::Pending);
    resume(&mut client, worker).await;
    assert_eq!(client.read_all(&waiting).await.last(), Some(&TestEvent::Complete(json!({"echo": "waits"}))));
}

#[tokio::test]
async fn health_says_when_every_worker_is_drained() {
    let on_demand = fake_kind("on-demand", &[], "min = 0\nmax = 1");
    let server = Server::start(&format!("{}{on_demand}", fake_kind("k", &[], "min = 2\nmax = 2")));
    let mut client = server.client().await;
    client.all_free(2).await;
    client.execute(Query { kind: "on-demand".to_owned(), ..query(&json!(1)) }).await;
    drain(&mut client, 1).await;
    assert!(client.health().await.reasons.is_empty(), "one is left");
    drain(&mut client, 2).await;
    assert_eq!(client.health().await.reasons, ["kind k has no worker that takes queries: 2 drained by hand"]);
    assert_eq!(run(&server, &["health", "--kind", "k", "--quiet"]).0, 1);
    // There is no room for another one beside it, though the kind starts its workers on demand.
    drain(&mut client, 3).await;
    let health = client.health().await;
    assert!(!health.serving);
    let text = "kind on-demand has no worker that takes queries: 1 drained by hand";
    assert_eq!(health.reasons.last().unwrap(), text);
    let waiting = client.submit(Query { kind: "k".to_owned(), ..query(&json!(2)) }).await.unwrap();
    assert_eq!(client.state(&waiting).await, QueryState::Pending);
    resume(&mut client, 2).await;
    assert_eq!(client.read_all(&waiting).await.last(), Some(&TestEvent::Complete(json!({"echo": 2}))));
    assert!(client.health().await.serving);
}

#[tokio::test]
async fn drained_worker_is_made_up_for_where_the_kind_may_have_more() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 2"));
    let mut client = server.client().await;
    client.all_free(1).await;
    drain(&mut client, 1).await;
    client.all_free(2).await;
    assert_eq!(client.served(3).await, [2; 3]);
}

#[tokio::test]
async fn drained_pool_finishes_what_it_has_and_takes_nothing_new() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let mut watcher = Watcher::of(&mut client, &[], &["pool:drained", "pool:resumed"]).await;
    client.execute_as("letter", query(&json!({"steps": [{"exit": 1}]}))).await.unwrap();
    let gate = server.gate("a");
    let (running, _) = client.occupy(&gate).await;
    let waiting = client.submit(query(&json!("waits"))).await.unwrap();
    client.admin.drain_pool(proto::DrainPoolRequest { reason: "the disk is full".to_owned() }).await.unwrap();
    let text = "the pool was drained by hand and takes no queries until it is resumed: the disk is full";
    assert_eq!(reason_of(&watcher.next().await.unwrap()), "by hand: the disk is full");

    let refused = client.submit(query(&json!(1))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, text));
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "DRAINED");
    assert!(details.retry_info().is_some());
    let refused = client.execute_as("", query(&json!(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let (code, out, err) = run(&server, &["run", "1"]);
    assert!(code == 4 && out.is_empty() && err.contains(text), "{code} {out} {err}");
    let (code, _, err) = run(&server, &["dead", "requeue", "letter"]);
    assert!(code == 4 && err.contains(text), "{code} {err}");

    let health = client.health().await;
    assert_eq!((health.serving, health.reasons.as_slice()), (false, &[text.to_owned()][..]));
    assert!(!health.kinds[0].serving, "nor does any kind");
    let (status, body) = server.get("/readyz");
    assert!(status == 503 && body.contains("the disk is full"), "{status} {body}");
    assert_eq!(server.get("/livez").0, 200);
    let (code, out, _) = run(&server, &["health"]);
    assert!(code == 1 && out.contains("not serving") && out.contains(text), "{out}");

    assert_eq!(client.state(&running).await, QueryState::Streaming);
    assert_eq!(client.read(&running, 0, 1).await.unwrap().len(), 1, "its events can be read");
    std::fs::write(&gate, "").unwrap();
    assert!(matches!(client.read_all(&running).await.last(), Some(TestEvent::Complete(_))));
    assert_eq!(client.read_all(&waiting).await.last(), Some(&TestEvent::Complete(json!({"echo": "waits"}))));

    client.admin.resume_pool(proto::ResumePoolRequest {}).await.unwrap();
    assert_eq!(watcher.next().await.unwrap().name, "pool:resumed");
    client.admin.resume_pool(proto::ResumePoolRequest {}).await.unwrap();
    eventually_async("the pool to serve", || {
        let mut client = client.clone();
        async move { client.health().await.serving.then_some(()) }
    })
    .await;
    assert_eq!(client.execute(query(&json!(3))).await.result(), json!({"echo": 3}));
    assert_eq!(server.get("/readyz").0, 200);
}

#[tokio::test]
async fn command_drains_and_resumes_the_pool() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let (code, out, _) = run(&server, &["drain", "--reason", "lunch"]);
    assert!(code == 0 && out.contains("undo it with: remuda resume"), "{out}");
    assert!(client.submit(query(&json!(1))).await.unwrap_err().message().ends_with(": lunch"));
    // Said again without a reason, it is drained without one.
    let done: Value = serde_json::from_str(&run(&server, &["drain", "--json"]).1).unwrap();
    assert_eq!(done, json!({"done": "drain", "worker_id": null}));
    assert!(client.submit(query(&json!(1))).await.unwrap_err().message().ends_with("until it is resumed"));
    let (code, out, _) = run(&server, &["resume"]);
    assert_eq!((code, out.as_str()), (0, "the pool takes queries\n"));
    assert_eq!(run(&server, &["run", "1"]).0, 0);
    assert_eq!(run(&server, &["resume", "--json"]).1, "{\"done\":\"resume\",\"worker_id\":null}\n");
}
