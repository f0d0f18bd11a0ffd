//! The order and the limits of the queue, by its settings.

use remuda::api::proto::{Query, QueryState};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Server, TestEvent, eventually, eventually_async, fake_kind, query};

/// A server with one worker that is busy until the gate is opened.
async fn busy_server(queue: &str) -> (Server, Client, String) {
    let server = Server::start(&format!("[queue]\n{queue}\n{}", fake_kind("k", &[], "min = 1\nmax = 1")));
    let mut client = server.client().await;
    let gate = server.gate("gate");
    client.occupy(&gate).await;
    (server, client, gate)
}

fn query_of(owner: &str, priority: u32) -> Query {
    Query { owner: owner.to_owned(), priority, ..query(&json!(1)) }
}

/// Submits the query under an id.
async fn submit_as(client: &mut Client, id: &str, query: Query) -> Result<(), tonic::Status> {
    let request = remuda::api::proto::SubmitRequest { query_id: id.to_owned(), query: Some(query) };
    client.pool.submit(request).await.map(drop)
}

/// Opens the gate and gives the ids of the queries in the order in which the worker got them.
async fn served(client: &mut Client, gate: &str, ids: &[&str]) -> Vec<String> {
    std::fs::write(gate, "").unwrap();
    let mut started = Vec::new();
    for id in ids {
        client.read_all(id).await;
        let request = remuda::api::proto::GetQueryRequest { query_id: (*id).to_owned() };
        let info = client.admin.get_query(request).await.unwrap().into_inner().query.unwrap();
        let at = info.started_at.expect("it ran");
        started.push(((at.seconds, at.nanos), (*id).to_owned()));
    }
    started.sort_unstable();
    started.into_iter().map(|(_, id)| id).collect()
}

#[tokio::test]
async fn owners_take_turns_within_a_priority() {
    let (_server, mut client, gate) = busy_server("").await;
    for id in ["a1", "a2", "a3", "a4"] {
        submit_as(&mut client, id, query_of("alice", 5)).await.unwrap();
    }
    for id in ["b1", "b2"] {
        submit_as(&mut client, id, query_of("bob", 5)).await.unwrap();
    }
    submit_as(&mut client, "urgent", query_of("alice", 0)).await.unwrap();
    let order = served(&mut client, &gate, &["a1", "a2", "a3", "a4", "b1", "b2", "urgent"]).await;
    assert_eq!(order[0], "urgent");
    let owners: String = order[1..].iter().map(|id| &id[..1]).collect();
    assert!(["ababaa", "babaaa"].contains(&owners.as_str()), "{order:?}");
    let of_alice: Vec<_> = order[1..].iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_alice, ["a1", "a2", "a3", "a4"], "each owner's own come in order");
}

#[tokio::test]
async fn query_that_has_waited_long_passes_those_of_a_higher_priority() {
    let (_server, mut client, gate) = busy_server("aging = \"50ms\"").await;
    submit_as(&mut client, "old", query_of("", 3)).await.unwrap();
    eventually_async("it to have aged by three", || {
        let mut client = client.clone();
        async move {
            let request = remuda::api::proto::GetQueryRequest { query_id: "old".to_owned() };
            let info = client.admin.get_query(request).await.unwrap().into_inner().query.unwrap();
            let submitted = std::time::SystemTime::try_from(info.submitted_at.unwrap()).unwrap();
            (submitted.elapsed().unwrap_or_default().as_millis() > 300).then_some(())
        }
    })
    .await;
    submit_as(&mut client, "young", query_of("", 1)).await.unwrap();
    assert_eq!(served(&mut client, &gate, &["old", "young"]).await, ["old", "young"]);
}

#[tokio::test]
async fn owner_has_no_more_waiting_queries_than_it_may() {
    let (_server, mut client, gate) = busy_server("max_queries_per_owner = 2").await;
    submit_as(&mut client, "a1", query_of("alice", 5)).await.unwrap();
    submit_as(&mut client, "a2", query_of("alice", 5)).await.unwrap();
    let refused = submit_as(&mut client, "a3", query_of("alice", 5)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("queue.max_queries_per_owner"), "{refused}");
    assert_eq!(refused.get_error_details().error_info().unwrap().reason, "OWNER_QUEUE_FULL");
    submit_as(&mut client, "b1", query_of("bob", 5)).await.unwrap();
    served(&mut client, &gate, &["a1", "a2", "b1"]).await;
    submit_as(&mut client, "a3", query_of("alice", 5)).await.unwrap();
}

#[tokio::test]
async fn owner_runs_no_more_queries_at_once_than_it_may() {
    let kind = fake_kind("k", &[], "min = 2\nmax = 2");
    let server = Server::start(&format!("[queue]\nmax_running_per_owner = 1\n{kind}"));
    let mut client = server.client().await;
    client.all_free(2).await;
    let gate = server.gate("gate");
    let slow = |owner: &str| Query { payload: crate::harness::waits_for(&gate).to_string(), ..query_of(owner, 5) };
    submit_as(&mut client, "a1", slow("alice")).await.unwrap();
    submit_as(&mut client, "a2", slow("alice")).await.unwrap();
    submit_as(&mut client, "b1", slow("bob")).await.unwrap();
    eventually("two to run", || {
        (server.metric(r#"remuda_queries{kind="k",state="streaming"}"#) as u32 == 2).then_some(())
    });
    assert_eq!(client.state("a2").await, QueryState::Pending, "it waits though a worker was free");
    assert_eq!(client.state("b1").await, QueryState::Streaming, "and others pass it");
    std::fs::write(&gate, "").unwrap();
    for id in ["a1", "a2", "b1"] {
        assert!(matches!(client.read_all(id).await.last(), Some(TestEvent::Complete(_))), "{id}");
    }
}

#[tokio::test]
async fn full_queue_sheds_the_least_urgent_and_refuses_the_equally_urgent() {
    let (_server, mut client, gate) = busy_server("max_queries = 2").await;
    submit_as(&mut client, "low", query_of("", 9)).await.unwrap();
    submit_as(&mut client, "middle", query_of("", 5)).await.unwrap();
    submit_as(&mut client, "high", query_of("", 1)).await.unwrap();
    let events = client.read_all("low").await;
    assert!(matches!(&events[..], [TestEvent::Rejected(_)]), "{events:?}");
    let refused = submit_as(&mut client, "lowest", query_of("", 9)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(refused.get_error_details().error_info().unwrap().reason, "QUEUE_FULL");
    assert_eq!(served(&mut client, &gate, &["middle", "high"]).await, ["high", "middle"]);
}

#[tokio::test]
async fn ended_queries_are_kept_up_to_their_maximum() {
    let server = Server::start(&format!("[results]\nmax_ended = 3\n{}", fake_kind("k", &[], "min = 1")));
    let mut client = server.client().await;
    for n in 0..10 {
        let id = format!("q{n}");
        submit_as(&mut client, &id, query_of("", 5)).await.unwrap();
        assert!(matches!(client.read_all(&id).await.last(), Some(TestEvent::Complete(_))), "{id}");
    }
    for n in 0..7 {
        let gone = client.cancel(&format!("q{n}"), "").await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound, "q{n}");
    }
    for n in 7..10 {
        assert_eq!(client.state(&format!("q{n}")).await, QueryState::Complete, "q{n}");
    }
}

fn weighing(bytes: usize, priority: u32) -> Query {
    Query { payload: json!("x".repeat(bytes - 2)).to_string(), ..query_of("", priority) }
}

#[tokio::test]
async fn waiting_payloads_stay_within_their_byte_limit() {
    let (_server, mut client, gate) = busy_server("max_bytes = \"10KiB\"").await;
    submit_as(&mut client, "first", weighing(6_000, 5)).await.unwrap();
    submit_as(&mut client, "low", weighing(4_000, 9)).await.unwrap();
    let refused = submit_as(&mut client, "too-much", weighing(1_000, 9)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("queue.max_bytes"), "{refused}");
    assert_eq!(refused.get_error_details().error_info().unwrap().reason, "QUEUE_FULL");
    submit_as(&mut client, "urgent", weighing(4_200, 1)).await.unwrap();
    let events = client.read_all("low").await;
    assert!(matches!(&events[..], [TestEvent::Rejected(_)]), "{events:?}");
    assert_eq!(served(&mut client, &gate, &["first", "urgent"]).await, ["urgent", "first"]);
    submit_as(&mut client, "later", weighing(9_000, 9)).await.unwrap();
}

#[tokio::test]
async fn ended_queries_and_dead_letters_weigh_no_more_than_they_may() {
    let limits =
        "[retry]\nattempts = 0\n[results]\nmax_total_bytes = \"10KiB\"\n[dead_letters]\nmax_bytes = \"10KiB\"\n";
    let server = Server::start(&format!("{limits}{}", fake_kind("k", &[], "min = 1")));
    let mut client = server.client().await;
    let dying = json!({"steps": [{"message": "x".repeat(2_000)}, {"error": {"error": "no", "retryable": true}}]});
    for n in 0..10 {
        let id = format!("q{n}");
        submit_as(&mut client, &id, weighing(2_000, 5)).await.unwrap();
        assert!(matches!(client.read_all(&id).await.last(), Some(TestEvent::Complete(_))), "{id}");
        let id = format!("d{n}");
        submit_as(&mut client, &id, query(&dying)).await.unwrap();
        assert!(matches!(client.read_all(&id).await.last(), Some(TestEvent::Error(_))), "{id}");
    }
    // A query of 2,000 bytes is echoed, so that 4,000 are kept of it.
    for n in 0..8 {
        let gone = client.cancel(&format!("q{n}"), "").await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound, "q{n}");
    }
    assert_eq!(client.state("q9").await, QueryState::Complete);
    assert_eq!(server.metric(r#"remuda_dead_letters{kind="k"}"#) as u32, 2);
}
