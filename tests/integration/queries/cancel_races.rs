//! Cancels that race with everything else that can happen to a query.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    time::{Duration, Instant},
};

use fastrand::Rng;
use nix::sys::signal::Signal;
use remuda::api::proto::{
    CancelFound, CancelResponse, Event, QueryState, StopStage, StreamResultsRequest, SubmitRequest, event::Body,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{Client, DEADLINE, Seed, Server, TestEvent, end_of, eventually, fake_kind, query, send_signal};

const WORKERS: usize = 8;
const CLIENTS: usize = 32;
const QUERIES: usize = 1_000;

/// Its workers answer a cancel, and however slow the machine is, none is stopped for being late.
fn server(workers: usize) -> Server {
    Server::start(&fake_kind("k", &[], &format!("min = {workers}\nmax = {workers}\ncancel_grace = \"60s\"")))
}

async fn submit_as(client: &mut Client, id: &str, payload: &Value) {
    let request = SubmitRequest { query_id: id.to_owned(), query: Some(query(payload)) };
    client.pool.submit(request).await.expect("the query is accepted");
}

/// Cancels as soon as the server has heard of the query.
async fn cancel_once_known(client: &mut Client, id: &str) -> CancelResponse {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match client.cancel(id, "race").await {
            Ok(answer) => return answer,
            Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
        }
        assert!(Instant::now() < deadline, "the query {id} never came");
    }
}

async fn log_of(client: &mut Client, id: &str) -> Vec<Event> {
    client.read(id, 0, usize::MAX).await.expect("the query is known")
}

/// Waits busily: the timer is too coarse for a race.
async fn spin(delay: Duration) {
    let start = Instant::now();
    while start.elapsed() < delay {
        tokio::task::yield_now().await;
    }
}

/// Checks that the answers to cancels agree with the log.
#[track_caller]
fn assert_agrees(answers: &[CancelResponse], events: &[Event]) {
    let end = end_of(events);
    for answer in answers {
        match answer.found() {
            CancelFound::Queued => {
                assert_eq!(answer.state(), QueryState::Cancelled);
                assert_eq!(stage(events), Some(StopStage::Queued), "{events:?}");
                assert_eq!(events.len(), 1, "no worker had it, and yet: {events:?}");
            }
            CancelFound::Running | CancelFound::Cancelling => {
                assert!(matches!(answer.state(), QueryState::Processing | QueryState::Streaming), "{answer:?}");
                assert_eq!(end, QueryState::Cancelled, "a cancel was accepted: {events:?}");
            }
            CancelFound::Ended => assert_eq!(answer.state(), end, "{events:?}"),
            CancelFound::Unspecified => panic!("{answer:?}"),
        }
    }
    let accepted = |answer: &&CancelResponse| matches!(answer.found(), CancelFound::Queued | CancelFound::Running);
    let accepted = answers.iter().filter(accepted).count();
    assert_eq!(accepted, usize::from(end == QueryState::Cancelled), "{answers:?} for {events:?}");
}

fn stage(events: &[Event]) -> Option<StopStage> {
    match events.last()?.body.as_ref()? {
        Body::Cancelled(cancelled) => Some(cancelled.stage()),
        _ => None,
    }
}

/// Every worker that the pool began with is still there and takes a query, and nothing is counted that is over.
async fn assert_untouched(server: &Server, client: &mut Client, workers: usize) {
    let mut ids = Vec::new();
    for _ in 0..workers {
        ids.push(client.submit(query(&json!({"steps": ["pid", "hang"]}))).await.unwrap());
    }
    let mut seen = BTreeSet::new();
    for id in &ids {
        let events = client.read(id, 0, 1).await.unwrap();
        let TestEvent::Message(identity) = TestEvent::from(&events[0]) else { panic!("{events:?}") };
        seen.insert(identity["worker"].as_u64().unwrap());
    }
    assert_eq!(seen, (1..=workers as u64).collect(), "each worker of the first hour has one of the queries");
    for id in &ids {
        assert_eq!(client.cancel(id, "enough").await.unwrap().found(), CancelFound::Running);
        assert_eq!(end_of(&log_of(client, id).await), QueryState::Cancelled);
    }
    eventually("all workers to be ready again", || {
        (server.metric(r#"remuda_workers{kind="k",state="ready"}"#) as usize == workers).then_some(())
    });
    for state in ["pending", "processing", "streaming", "retry_pending"] {
        let count = server.metric(&format!(r#"remuda_queries{{kind="k",state="{state}"}}"#));
        assert_eq!(count as usize, 0, "{state} queries are counted, and there are none");
    }
    assert_eq!(server.metric(r#"remuda_queue_depth{kind="k"}"#) as usize, 0);
}

#[tokio::test]
async fn query_cancelled_before_dispatch_never_meets_a_worker() {
    let server = server(1);
    let mut client = server.client().await;
    submit_as(&mut client, "running", &json!({"steps": [{"message": 1}, "hang"]})).await;
    client.read("running", 0, 1).await.unwrap();
    submit_as(&mut client, "waiting", &json!({"steps": ["nonce"]})).await;
    let first = client.cancel("waiting", "not needed").await.unwrap();
    let second = client.cancel("waiting", "really not").await.unwrap();
    assert_eq!((first.found(), second.found()), (CancelFound::Queued, CancelFound::Ended));
    let events = log_of(&mut client, "waiting").await;
    assert_agrees(&[first, second], &events);
    assert_eq!(TestEvent::from(&events[0]), TestEvent::Cancelled("not needed".to_owned()));
    assert_eq!(events[0].attempt, 0);
    client.cancel("running", "enough").await.unwrap();
    assert_untouched(&server, &mut client, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_in_the_dispatch_window_ends_the_query_once() {
    const ROUNDS: usize = 200;
    let server = server(1);
    // Connections of their own, so that the server handles both calls at once.
    let (mut client, mut canceller) = (server.client().await, server.client().await);
    for round in 0..ROUNDS {
        let id = format!("arriving-{round}");
        let hang = json!({"steps": ["hang"]});
        let submit = submit_as(&mut client, &id, &hang);
        let ((), answer) = tokio::join!(submit, cancel_once_known(&mut canceller, &id));
        assert_agrees(&[answer], &log_of(&mut client, &id).await);
    }
    for round in 0..ROUNDS {
        let (before, id) = (format!("before-{round}"), format!("next-{round}"));
        submit_as(&mut client, &before, &json!({"steps": [{"sleep_ms": 1}]})).await;
        submit_as(&mut client, &id, &json!({"steps": ["hang"]})).await;
        // Its turn comes with the end of the one before.
        end_of(&log_of(&mut client, &before).await);
        let answer = canceller.cancel(&id, "race").await.unwrap();
        assert_agrees(&[answer], &log_of(&mut client, &id).await);
    }
    assert_untouched(&server, &mut client, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_complete_at_the_same_instant_count_once() {
    const ROUNDS: usize = 200;
    const STEP: Duration = Duration::from_micros(200);
    let server = server(1);
    let mut client = server.client().await;
    let mut wins: BTreeMap<QueryState, usize> = BTreeMap::new();
    let mut delay = Duration::from_millis(5);
    for round in 0..ROUNDS {
        let id = format!("q-{round}");
        submit_as(&mut client, &id, &json!({"steps": [{"message": 1}, {"sleep_ms": 5}, {"complete": 1}]})).await;
        let request = StreamResultsRequest { query_id: id.clone(), from_sequence: 0 };
        let mut stream = client.pool.stream_results(request).await.unwrap().into_inner();
        stream.message().await.unwrap().expect("the message");
        spin(delay).await;
        let answer = client.cancel(&id, "race").await.unwrap();
        let events = log_of(&mut client, &id).await;
        assert_agrees(&[answer], &events);
        let end = end_of(&events);
        *wins.entry(end).or_default() += 1;
        // Whoever won gets a handicap: so the two stay close together on any machine.
        delay = if end == QueryState::Cancelled { delay + STEP } else { delay.saturating_sub(STEP) };
    }
    assert_eq!(wins.keys().copied().collect::<Vec<_>>(), [QueryState::Complete, QueryState::Cancelled], "{wins:?}");
    assert_untouched(&server, &mut client, 1).await;
}

#[tokio::test]
async fn second_cancel_finds_the_first_one_under_way() {
    let server = server(1);
    let (mut client, mut other) = (server.client().await, server.client().await);
    submit_as(&mut client, "q", &json!({"steps": ["pid", "hang"], "on_cancel": ["hang"]})).await;
    let events = client.read("q", 0, 1).await.unwrap();
    let TestEvent::Message(identity) = TestEvent::from(&events[0]) else { panic!("{events:?}") };
    let (mine, yours) = tokio::join!(client.cancel("q", "mine"), other.cancel("q", "yours"));
    let (mine, yours) = (mine.unwrap(), yours.unwrap());
    let third = client.cancel("q", "again").await.unwrap();
    assert_eq!(third.found(), CancelFound::Cancelling);
    assert_eq!(client.state("q").await, QueryState::Streaming, "the worker has not let go");
    send_signal(identity["pid"].as_u64().unwrap() as u32, Signal::SIGKILL);
    let events = log_of(&mut client, "q").await;
    assert_agrees(&[mine, yours, third], &events);
    let reason = if mine.found() == CancelFound::Running { "mine" } else { "yours" };
    assert_eq!(TestEvent::from(&events[1]), TestEvent::Cancelled(reason.to_owned()), "the first one counts");
}

#[tokio::test]
async fn cancel_after_the_end_changes_nothing() {
    let server = server(1);
    let mut client = server.client().await;
    for (id, step, end) in [
        ("complete", json!({"complete": 1}), QueryState::Complete),
        ("error", json!({"error": {"error": "no"}}), QueryState::Error),
    ] {
        submit_as(&mut client, id, &json!({"steps": [step]})).await;
        let before = log_of(&mut client, id).await;
        for _ in 0..2 {
            let answer = client.cancel(id, "too late").await.unwrap();
            assert_eq!((answer.found(), answer.state()), (CancelFound::Ended, end));
        }
        assert_eq!(log_of(&mut client, id).await, before);
        assert_eq!(end_of(&before), end);
    }
    assert_untouched(&server, &mut client, 1).await;
}

/// One query and its cancels, as chance has it.
#[derive(Debug)]
struct Plan {
    id: String,
    payload: Value,
    /// Microseconds after the submit.
    cancels: Vec<u64>,
}

impl Plan {
    fn draw(number: usize, rng: &mut Rng) -> Self {
        let payload = match rng.u8(..3) {
            0 => json!({"steps": [{"complete": number}]}),
            1 => json!({"steps": [{"message": number}, {"sleep_ms": rng.u8(..=3)}, {"complete": number}]}),
            _ => json!({"steps": ["hang"]}),
        };
        let cancels = (0..=rng.usize(..2)).map(|_| rng.u64(..4_000)).collect();
        Self { id: format!("q-{number}"), payload, cancels }
    }

    /// Carries it out and tells what the cancels found.
    async fn run(self, client: &Client) -> Vec<CancelFound> {
        let cancels = self.cancels.iter().map(|micros| {
            let (mut client, id, delay) = (client.clone(), self.id.clone(), Duration::from_micros(*micros));
            tokio::spawn(async move {
                spin(delay).await;
                cancel_once_known(&mut client, &id).await
            })
        });
        let cancels: Vec<_> = cancels.collect();
        let mut client = client.clone();
        let ended = client.execute_as(&self.id, query(&self.payload)).await.expect("the query is accepted");
        let mut answers = Vec::new();
        for cancel in cancels {
            answers.push(cancel.await.expect("the cancel was answered"));
        }
        assert_agrees(&answers, &ended.events);
        assert_eq!(ended.status.is_none(), end_of(&ended.events) == QueryState::Complete, "{ended:?}");
        assert_eq!(log_of(&mut client, &self.id).await, ended.events, "all readers see the same");
        answers.iter().map(CancelResponse::found).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_random_interleavings_have_one_end_each() {
    let seed = Seed::pick();
    let server = server(WORKERS);
    let mut client = server.client().await;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (client, mut rng) = (client.clone(), seed.rng(number as u64));
            tokio::spawn(async move {
                let mut found = Vec::new();
                for n in (number..QUERIES).step_by(CLIENTS) {
                    found.extend(Plan::draw(n, &mut rng).run(&client).await);
                }
                found
            })
        })
        .collect();
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for client in clients {
        for found in client.await.unwrap() {
            *tally.entry(found.as_str_name()).or_default() += 1;
        }
    }
    let _ = writeln!(std::io::stderr(), "{QUERIES} queries; their cancels found {tally:?}");
    assert_untouched(&server, &mut client, WORKERS).await;
}
