//! Operations on the pool's size and on single workers: scale, restart, evict.

use remuda::api::proto::{
    self, DeathCause, QueryState, ScaleKindRequest, ScaleKindResponse, pool_event::Body, scale_kind_request::Target,
};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::harness::{
    Client, Load, Server, TestEvent, Watcher, eventually_async, fake_kind, query, reason_of, run, tells_worker,
    worker_of,
};

/// One worker at least and four at most; those that are not needed go at once.
fn elastic() -> String {
    let quick = "scale_down_after = \"10ms\"\nidle_ttl = \"10ms\"";
    fake_kind("k", &[], &format!("min = 1\nmax = 4\n{quick}"))
}

async fn scale(client: &mut Client, target: Target) -> Result<(u32, u32), Status> {
    let request = ScaleKindRequest { kind: "k".to_owned(), target: Some(target) };
    let ScaleKindResponse { kind, from, to } = client.admin.scale_kind(request).await?.into_inner();
    assert_eq!(kind, "k");
    Ok((from, to))
}

#[tokio::test]
async fn kind_has_as_many_workers_as_an_operator_asks_for_and_keeps_them() {
    let server = Server::start(&elastic());
    let mut client = server.client().await;
    client.all_free(1).await;
    assert_eq!(scale(&mut client, Target::Workers(3)).await.unwrap(), (1, 3));
    assert_eq!(client.all_free(3).await.len(), 3);
    client.two_ticks().await;
    assert_eq!(client.all_free(3).await, [1, 2, 3], "the autoscaler lets them be");
    let (code, out, _) = run(&server, &["scale", "k", "2"]);
    assert_eq!((code, out.as_str()), (0, "kind k is to have 2 workers now; it was 3\n"));
    assert_eq!(client.all_free(2).await.len(), 2);
    let (code, out, _) = run(&server, &["scale", "k", "2", "--json"]);
    assert_eq!((code, out.as_str()), (0, "{\"kind\":\"k\",\"from\":2,\"to\":2}\n"));
    // A worker that dies is replaced: the size was asked for.
    client.execute(query(&json!({"steps": [{"exit": 1}]}))).await;
    client.all_free(2).await;
}

#[tokio::test]
async fn steps_are_taken_from_what_was_asked_for_last_and_end_at_the_limits() {
    let slow = tempfile::tempdir().unwrap();
    let gate = slow.path().join("gate").display().to_string();
    let start =
        json!(["connect", {"if_worker": [1, [{"ready": {}}]]}, {"await_file": gate}, {"ready": {}}]).to_string();
    let kind = fake_kind("k", &["--start", &start], "min = 1\nmax = 4");
    let server = Server::start(&format!("[pool]\nmax_starting = 1\n{kind}"));
    let mut client = server.client().await;
    client.all_free(1).await;
    // The second step is taken while the first worker still starts and the next one has to wait for that.
    for expected in [(1, 2), (2, 3)] {
        assert_eq!(scale(&mut client, Target::By(1)).await.unwrap(), expected);
    }
    eventually_async("one to be started", || {
        let mut client = client.clone();
        async move { (client.workers().await.len() == 2).then_some(()) }
    })
    .await;
    assert_eq!(scale(&mut client, Target::By(1)).await.unwrap(), (3, 4));
    assert_eq!(scale(&mut client, Target::By(-1)).await.unwrap(), (4, 3));
    std::fs::write(&gate, "").unwrap();
    client.all_free(3).await;
    let (code, out, _) = run(&server, &["scale", "k", "+9"]);
    assert_eq!((code, out.as_str()), (0, "kind k is to have 4 workers now; it was 3\n"));
    client.all_free(4).await;
    let first = scale(&mut client, Target::By(-1)).await.unwrap();
    let second = scale(&mut client, Target::By(-1)).await.unwrap();
    assert_eq!((first, second), ((4, 3), (3, 2)));
    client.all_free(2).await;
    let (code, out, _) = run(&server, &["scale", "k", "-9", "--json"]);
    assert_eq!((code, out.as_str()), (0, "{\"kind\":\"k\",\"from\":2,\"to\":1}\n"));
    client.all_free(1).await;
    assert_eq!(run(&server, &["scale", "k", "-1"]).1, "kind k is to have 1 worker, as before\n");
}

#[tokio::test]
async fn size_beyond_the_limits_is_refused_and_the_limit_named() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 9\nmemory = \"10MiB\"");
    let other = fake_kind("other", &[], "min = 0\nmax = 9\nmemory = \"20MiB\"");
    let server = Server::start(&format!("[pool]\nmax_workers = 6\nmemory_budget = \"100MiB\"\n{kind}{other}"));
    let mut client = server.client().await;
    for (workers, limit) in [
        (0, "kind k may have 1 to 9 workers (min, max); change these in the configuration to go beyond"),
        (10, "kind k may have 1 to 9 workers (min, max); change these in the configuration to go beyond"),
        (7, "the pool has 6 at most (pool.max_workers)"),
    ] {
        let status = scale(&mut client, Target::Workers(workers)).await.unwrap_err();
        let text = format!("workers: {workers} is out of range; {limit}");
        assert_eq!((status.code(), status.message()), (Code::OutOfRange, text.as_str()));
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "workers");
        let (code, _, err) = run(&server, &["scale", "k", &workers.to_string()]);
        assert_eq!((code, err), (2, format!("error: {text}\n")));
    }
    let (code, _, err) = run(&server, &["scale", "other", "6"]);
    assert!(
        code == 2 && err.contains("they would need 120.0 MiB, more than pool.memory_budget, which is 100.0 MiB"),
        "{err}"
    );
    assert_eq!(client.all_free(1).await, [1], "nothing has changed");
}

#[tokio::test]
async fn scaling_down_takes_idle_workers_first_and_busy_ones_after_their_query() {
    let server = Server::start(&elastic());
    let mut client = server.client().await;
    scale(&mut client, Target::Workers(4)).await.unwrap();
    client.all_free(4).await;
    let gates = [server.gate("a"), server.gate("b")];
    let busy = [client.occupy(&gates[0]).await, client.occupy(&gates[1]).await];
    let mut watcher = Watcher::of(&mut client, &["k"], &["pool:scaled"]).await;
    scale(&mut client, Target::Workers(1)).await.unwrap();
    let scaled = watcher.next().await.unwrap();
    assert_eq!(reason_of(&scaled), "someone asked for 1 worker");
    assert!(matches!(scaled.body, Some(Body::Scaled(scaled)) if (scaled.from, scaled.to) == (4, 1)));
    for id in (1..=4).filter(|id| busy.iter().all(|(_, worker)| worker != id)) {
        assert_eq!(client.cause_of(id).await, DeathCause::ScaledDown, "worker {id} was idle");
    }
    for (id, _) in &busy {
        assert_eq!(client.state(id).await, QueryState::Streaming, "it runs on");
    }
    for ((id, worker), gate) in busy.iter().zip(&gates) {
        std::fs::write(gate, "").unwrap();
        let events = client.read_all(id).await;
        assert!(
            matches!(events.last(), Some(TestEvent::Complete(result)) if result["worker"] == *worker),
            "{events:?}"
        );
    }
    assert_eq!(client.all_free(1).await.len(), 1);
}

/// Restarts a worker and checks that the new one was ready before the old one was told to stop.
async fn restarts_in_order(server: &Server, client: &mut Client, old: u64, restart: impl AsyncFnOnce()) -> u64 {
    let mut watcher = Watcher::of(client, &["k"], &["worker:"]).await;
    restart().await;
    let new = worker_of(&watcher.named("worker:starting").await).unwrap();
    watcher.worker("worker:ended", old).await;
    assert!(watcher.place("worker:ready", new) < watcher.place("worker:stopping", old), "{:?}", watcher.seen);
    assert_eq!(client.cause_of(old).await, DeathCause::Restarted);
    let history = run(server, &["workers", &old.to_string()]).1;
    assert!(history.contains("restarted"), "{history}");
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_worker_stops_when_its_successor_is_ready() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let load = Load::start(&server, 4, &tells_worker()).await;
    let mut admin = client.admin.clone();
    let second = restarts_in_order(&server, &mut client, 1, async || {
        admin.restart_worker(proto::RestartWorkerRequest { worker_id: 1 }).await.unwrap();
    })
    .await;
    let third = restarts_in_order(&server, &mut client, second, async || {
        let (code, out, _) = run(&server, &["restart", &second.to_string(), "--json"]);
        assert_eq!((code, out), (0, format!("{{\"done\":\"restart\",\"worker_id\":{second}}}\n")));
    })
    .await;
    load.stop().await;
    assert_eq!(client.all_free(1).await, [third]);
    assert_eq!(client.served(2).await, [third, third]);
}

#[tokio::test]
async fn restarted_worker_ends_its_query_first() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let gate = server.gate("a");
    let (id, worker) = client.occupy(&gate).await;
    let mut watcher = Watcher::new(&mut client).await;
    let (code, out, _) = run(&server, &["restart", &worker.to_string()]);
    assert_eq!(code, 0);
    assert!(out.starts_with("worker 1 will be replaced"), "{out}");
    watcher.named("worker:ready").await;
    assert_eq!(client.served(1).await, [2], "the new one serves meanwhile");
    std::fs::write(&gate, "").unwrap();
    watcher.worker("worker:ended", worker).await;
    let events = client.read_all(&id).await;
    assert!(matches!(events.last(), Some(TestEvent::Complete(result)) if result["worker"] == worker), "{events:?}");
}

#[tokio::test]
async fn eviction_takes_only_a_worker_that_is_free_and_not_needed() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 4"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let refusal = |status: Status| {
        let reason = status.get_error_details().error_info().unwrap().reason.clone();
        (status.code(), reason, status.message().to_owned())
    };
    let evict = async |client: &mut Client, worker_id| {
        client.admin.evict_worker(proto::EvictWorkerRequest { worker_id }).await.map_err(refusal)
    };
    let (code, reason, text) = evict(&mut client, 1).await.unwrap_err();
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "AT_MINIMUM"));
    let kept = "kind k has no more workers than the 1 it keeps; scale it down first, or restart the worker instead";
    assert_eq!(text, kept);
    let (code, _, err) = run(&server, &["evict", "1"]);
    assert_eq!((code, err), (1, format!("error: {kept}\n")));

    // Growth by load may be evicted again, but for what is busy.
    let gates = [server.gate("a"), server.gate("b"), server.gate("c")];
    let mut busy = Vec::new();
    for gate in &gates {
        busy.push(client.occupy(gate).await);
    }
    let (id, worker) = busy[2].clone();
    let (code, reason, text) = evict(&mut client, worker).await.unwrap_err();
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "WORKER_BUSY"));
    assert_eq!(text, format!("worker {worker} runs query {id}; drain it, or cancel the query, first"));
    for gate in &gates {
        std::fs::write(gate, "").unwrap();
    }
    client.all_free(3).await;
    let mut watcher = Watcher::of(&mut client, &["k"], &["worker:evicted", "worker:ended"]).await;
    evict(&mut client, worker).await.unwrap();
    let evicted = watcher.next().await.unwrap();
    assert_eq!((evicted.name.as_str(), worker_of(&evicted)), ("worker:evicted", Some(worker)));
    assert_eq!(reason_of(&evicted), "someone asked for it");
    watcher.worker("worker:ended", worker).await;
    assert_eq!(client.cause_of(worker).await, DeathCause::Evicted);
    let (code, out, _) = run(&server, &["evict", &busy[1].1.to_string(), "--json"]);
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, done), (0, json!({"done": "evict", "worker_id": busy[1].1})));
    assert_eq!(client.all_free(1).await, [busy[0].1]);
    let (code, _, err) = run(&server, &["evict", &worker.to_string()]);
    assert!(code == 1 && err.contains("is not known, or has ended"), "{err}");

    // A size that was asked for is kept.
    scale(&mut client, Target::Workers(2)).await.unwrap();
    let two = client.all_free(2).await;
    assert_eq!(evict(&mut client, two[0]).await.unwrap_err().1, "AT_MINIMUM");
}
