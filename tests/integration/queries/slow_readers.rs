//! Clients that do not read: each overflow policy, and no effect on others.

use remuda::api::proto::{
    CancelFound, ErrorReason, Event, ExecuteRequest, ExecuteResponse, QueryState, StopStage, event::Body,
    execute_response, worker_pool_client::WorkerPoolClient,
};
use serde_json::json;
use tonic::{Streaming, transport::Channel};

use crate::harness::{Client, Server, TestEvent, end_of, eventually_async, fake_kind, query};

/// Far more than all the buffers between a worker and its reader hold.
const FLOOD: u64 = 8_000;
const FLOOD_SIZE: usize = 1_024;

/// Bounds of a log that hold a well-behaved query but only a little of the flood.
const BOUNDS: [&str; 2] = ["max_bytes = \"64KiB\"", "max_events = 1_100"];

/// Workers that promise to beat, and must not be silent for long.
const HEARTBEAT_START: &str = r#"["connect", {"ready": {"heartbeat": true}}, {"beat_ms": 100}]"#;
const HEARTBEAT_SETTINGS: &str = "min = 2\nmax = 2\nheartbeat_warning = \"500ms\"\nheartbeat_timeout = \"1s\"";

fn server(overflow: &str, bound: &str) -> Server {
    let results = format!("[results]\noverflow = \"{overflow}\"\n{bound}\nmax_stall = \"200ms\"\n");
    Server::start(&format!("{results}{}", fake_kind("k", &["--start", HEARTBEAT_START], HEARTBEAT_SETTINGS)))
}

/// A stream that nobody reads yet, and the id of its query.
struct Neglected {
    id: String,
    stream: Streaming<ExecuteResponse>,
}

impl Neglected {
    /// Asks for a flood and reads no more than what was accepted.
    async fn begin(server: &Server) -> Self {
        let window = 64 * 1_024;
        let endpoint = Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
        let endpoint = endpoint.initial_stream_window_size(window).initial_connection_window_size(window);
        let mut client = WorkerPoolClient::new(endpoint.connect().await.unwrap());
        let flood = query(&json!({"steps": [{"messages": {"count": FLOOD, "size": FLOOD_SIZE}}]}));
        let request = ExecuteRequest { query_id: String::new(), query: Some(flood) };
        let mut stream = client.execute(request).await.unwrap().into_inner();
        let accepted = stream.message().await.unwrap().expect("what was accepted").body;
        let Some(execute_response::Body::Accepted(accepted)) = accepted else { panic!("{accepted:?}") };
        Self { id: accepted.query_id, stream }
    }

    /// Reads all there is after all.
    async fn catch_up(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        // An end that is not a result is told once more, as the status.
        while let Ok(Some(response)) = self.stream.message().await {
            let Some(execute_response::Body::Event(event)) = response.body else { panic!("{response:?}") };
            events.push(event);
        }
        events
    }
}

async fn wait_for(client: &Client, id: &str, state: QueryState) {
    eventually_async(&format!("the query to be {state:?}"), || {
        let (mut client, id) = (client.clone(), id.to_owned());
        async move { (client.state(&id).await == state).then_some(()) }
    })
    .await;
}

/// Another client's query gets its thousand messages, none missing, while the first one is not read. It takes longer
/// than a slow reader is waited for.
async fn assert_others_are_served(client: &mut Client) {
    let steps = json!({"nonce": 7, "steps": [{"messages": {"count": 1_000, "delay_ms": 1}}, "nonce"]});
    let ended = client.execute(query(&steps)).await;
    assert_eq!(end_of(&ended.events), QueryState::Complete);
    let count = |event: &TestEvent| matches!(event, TestEvent::Message(_));
    assert_eq!(ended.test_events().iter().filter(|event| count(event)).count(), 1_000);
}

/// Number of the flood's messages, each of which must be in its place.
#[track_caller]
fn messages_in(events: &[Event]) -> u64 {
    let mut count = 0;
    for event in events {
        if let TestEvent::Message(message) = TestEvent::from(event) {
            assert_eq!(message["n"], json!(event.sequence + 1));
            count += 1;
        }
    }
    count
}

/// Both workers of the first hour are there, free, and of use.
async fn assert_workers_are_fine(client: &Client) {
    eventually_async("both workers to be free", || {
        let mut client = client.clone();
        async move {
            let workers = client.workers().await;
            assert!(workers.iter().all(|worker| worker.worker_id <= 2), "a worker was replaced: {workers:?}");
            workers.iter().all(|worker| worker.query_id.is_empty()).then_some(())
        }
    })
    .await;
    for n in 0..2 {
        assert_eq!(client.clone().execute(query(&json!(n))).await.result(), json!({"echo": n}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_policy_drops_the_oldest_events_of_a_slow_reader_and_nobody_waits() {
    for bound in BOUNDS {
        let server = server("gap", bound);
        let mut client = server.client().await;
        let neglected = Neglected::begin(&server).await;
        assert_others_are_served(&mut client).await;
        wait_for(&client, &neglected.id, QueryState::Complete).await;
        assert_workers_are_fine(&client).await;
        let events = neglected.catch_up().await;
        let gaps = events.iter().filter_map(|event| match &event.body {
            Some(Body::Gap(gap)) => Some(gap.last - gap.first + 1),
            _ => None,
        });
        let missing: u64 = gaps.sum();
        assert!(missing > 0, "there is no gap");
        assert_eq!(messages_in(&events) + missing, FLOOD, "what is not there, a gap tells of");
        assert!(matches!(events.last().map(TestEvent::from), Some(TestEvent::Complete(_))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_policy_delays_only_the_slow_readers_worker_and_loses_nothing() {
    for bound in BOUNDS {
        let server = server("stall", bound);
        let mut client = server.client().await;
        let neglected = Neglected::begin(&server).await;
        // Twice, and so for longer than a worker may go without being heard.
        assert_others_are_served(&mut client).await;
        assert_others_are_served(&mut client).await;
        assert_eq!(client.state(&neglected.id).await, QueryState::Streaming, "its worker waits for its reader");
        let events = neglected.catch_up().await;
        assert_eq!(end_of(&events), QueryState::Complete);
        assert_eq!(messages_in(&events), FLOOD);
        assert_workers_are_fine(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_that_waits_for_its_reader_can_be_cancelled_and_its_worker_lives_on() {
    let results = "[results]\noverflow = \"stall\"\nmax_events = 1_100\nmax_stall = \"200ms\"\n";
    let server = Server::start(&format!("{results}{}", fake_kind("k", &[], "min = 2\nmax = 2")));
    let mut client = server.client().await;
    let neglected = Neglected::begin(&server).await;
    assert_others_are_served(&mut client).await;
    assert_eq!(client.cancel(&neglected.id, "enough").await.unwrap().found(), CancelFound::Running);
    wait_for(&client, &neglected.id, QueryState::Cancelled).await;
    let events = neglected.catch_up().await;
    let Some(Body::Cancelled(cancelled)) = events.last().and_then(|event| event.body.clone()) else { panic!("no end") };
    assert_eq!(cancelled.stage(), StopStage::CancelFrame, "{cancelled:?}");
    assert_workers_are_fine(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_policy_ends_a_slow_readers_query_in_an_error_that_says_so() {
    for bound in BOUNDS {
        let server = server("fail", bound);
        let mut client = server.client().await;
        let neglected = Neglected::begin(&server).await;
        assert_others_are_served(&mut client).await;
        wait_for(&client, &neglected.id, QueryState::Error).await;
        assert_workers_are_fine(&client).await;
        let events = neglected.catch_up().await;
        let Some(Body::Error(error)) = events.last().and_then(|event| event.body.clone()) else { panic!("no error") };
        assert_eq!(error.reason(), ErrorReason::Overflow, "{error:?}");
        assert!(messages_in(&events) < FLOOD);
    }
}
