//! One query at a time: input, output and ending.

use std::time::Duration;

use remuda::api::proto::{self, CancelFound, QueryState, SubmitRequest};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Server, TestEvent, eventually_async, fake_kind, query};

fn one_worker() -> Server {
    Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"))
}

async fn wait_for(client: &mut Client, id: &str, state: QueryState) {
    let client = client.clone();
    eventually_async("a query's state", || {
        let (mut client, id) = (client.clone(), id.to_owned());
        async move { (client.state(&id).await == state).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn messages_and_result_come_back_in_order() {
    let server = one_worker();
    let mut client = server.client().await;
    let steps = json!({"steps": [{"session": "s-1"}, {"message": {"n": 1}}, {"message": [2, "zwei"]}, {"complete": {"ok": true}}]});
    let ended = client.execute(query(&steps)).await;
    assert_eq!(
        ended.test_events(),
        [
            TestEvent::Session("s-1".to_owned()),
            TestEvent::Message(json!({"n": 1})),
            TestEvent::Message(json!([2, "zwei"])),
            TestEvent::Complete(json!({"ok": true})),
        ]
    );
    assert!(ended.status.is_none());
    let numbers: Vec<_> = ended.events.iter().map(|event| (event.sequence, event.attempt)).collect();
    assert_eq!(numbers, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    // The same log can be read again after the end.
    assert_eq!(client.read_all(&ended.query_id).await, ended.test_events());
}

#[tokio::test]
async fn json_passes_through_byte_for_byte() {
    let server = one_worker();
    let mut client = server.client().await;
    let text = "{ \"big\": 12345678901234567890123, \"e\":1.0E5,\"u\":\"\\u00e4ö\",  \"dup\":1,\"dup\":2 }";
    let ended = client.execute(proto::Query { payload: text.to_owned(), ..Default::default() }).await;
    let Some(proto::event::Body::Message(message)) = &ended.events[0].body else { panic!("{ended:?}") };
    assert_eq!(message.content, text);
}

#[tokio::test]
async fn worker_gets_all_fields_of_the_query() {
    let server = one_worker();
    let mut client = server.client().await;
    let full = proto::Query {
        kind: "k".to_owned(),
        r#type: "embed".to_owned(),
        key: "tenant-7".to_owned(),
        session_id: "s-9".to_owned(),
        timeout: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
        ..query(&json!({"steps": ["frame"]}))
    };
    let frame = client.execute(full).await.result();
    assert_eq!(frame["type"], "query");
    assert_eq!(frame["queryType"], "embed");
    assert_eq!(frame["key"], "tenant-7");
    assert_eq!(frame["sessionId"], "s-9");
    assert_eq!(frame["attempt"], 1);
    assert_eq!(frame["timeoutMs"], 7_000);
}

#[tokio::test]
async fn reported_error_ends_the_query_and_not_the_worker() {
    let server = one_worker();
    let mut client = server.client().await;
    let failing = json!({"steps": [{"error": {"error": "no such model", "code": "E42", "details": {"model": "x"}}}]});
    let ended = client.execute(query(&failing)).await;
    let error = ended.error();
    assert_eq!((error.message.as_str(), error.code.as_str()), ("no such model", "E42"));
    assert_eq!(error.reason(), proto::ErrorReason::Reported);
    assert_eq!(error.details, r#"{"model":"x"}"#);
    let status = ended.status.expect("Execute tells how the query ended");
    assert_eq!((status.code(), status.message()), (Code::Unknown, "no such model"));
    let info = status.get_error_details().error_info().cloned().expect("details");
    assert_eq!((info.reason.as_str(), info.domain.as_str()), ("WORKER_REPORTED", "remuda"));
    assert_eq!(info.metadata["worker_code"], "E42");
    let before = client.workers().await[0].worker_id;
    assert_eq!(client.execute(query(&json!({"again": 1}))).await.result(), json!({"echo": {"again": 1}}));
    assert_eq!(client.workers().await[0].worker_id, before);
}

#[tokio::test]
async fn crash_names_the_worker_and_its_cause_and_the_worker_is_replaced() {
    let server = one_worker();
    let mut client = server.client().await;
    let ended = client.execute(query(&json!({"steps": [{"stderr": "out of cheese"}, {"exit": 3}]}))).await;
    let error = ended.error();
    assert_eq!(error.reason(), proto::ErrorReason::WorkerDied);
    assert!(error.message.starts_with("worker 1 (k) exited with code 3 after "), "{}", error.message);
    assert!(error.message.ends_with("its last words: out of cheese"), "{}", error.message);
    let certificate = error.certificate.expect("a death has a certificate");
    assert_eq!((certificate.worker_id, certificate.exit_code), (1, Some(3)));
    assert_eq!(certificate.cause(), proto::DeathCause::Crash);
    assert_eq!(certificate.query_id, ended.query_id);
    assert!(certificate.peak_rss_bytes > 0);
    let status = ended.status.expect("a status");
    assert_eq!(status.code(), Code::Internal);
    let facts = status.get_error_details().error_info().cloned().expect("details").metadata;
    assert_eq!((facts["cause"].as_str(), facts["exit_code"].as_str()), ("crash", "3"));
    assert_eq!((facts["attempt"].as_str(), facts["max_attempts"].as_str()), ("1", "1"));
    assert_eq!(facts["last_words"], "out of cheese");
    let again = client.execute(query(&json!("still here"))).await;
    assert_eq!(again.result(), json!({"echo": "still here"}));
    // The dead worker can still be asked about.
    let dead = client.worker(1).await;
    assert_eq!(dead.certificate.expect("a certificate").exit_code, Some(3));
    assert_eq!(dead.history.last().expect("a history").to(), proto::WorkerState::Dead);
}

#[tokio::test]
async fn result_that_arrived_before_the_crash_counts() {
    let server = one_worker();
    let mut client = server.client().await;
    let ended = client.execute(query(&json!({"steps": [{"complete": 1}, {"exit": 1}]}))).await;
    assert_eq!(ended.result(), json!(1));
}

#[tokio::test]
async fn cancel_is_defined_before_during_and_after() {
    let server = one_worker();
    let mut client = server.client().await;
    let running = client.submit(query(&json!({"steps": [{"message": 1}, "hang"]}))).await.unwrap();
    let waiting = client.submit(query(&json!(2))).await.unwrap();
    wait_for(&mut client, &running, QueryState::Streaming).await;

    let found = client.cancel(&waiting, "not needed").await.unwrap();
    assert_eq!((found.found(), found.state()), (CancelFound::Queued, QueryState::Cancelled));
    assert_eq!(client.read_all(&waiting).await, [TestEvent::Cancelled("not needed".to_owned())]);

    let found = client.cancel(&running, "enough").await.unwrap();
    assert_eq!(found.found(), CancelFound::Running);
    let events = client.read(&running, 0, usize::MAX).await.unwrap();
    let Some(proto::event::Body::Cancelled(cancelled)) = &events[1].body else { panic!("{events:?}") };
    assert_eq!((cancelled.reason.as_str(), cancelled.stage()), ("enough", proto::StopStage::CancelFrame));
    assert_eq!(events.len(), 2);

    let found = client.cancel(&running, "again").await.unwrap();
    assert_eq!((found.found(), found.state()), (CancelFound::Ended, QueryState::Cancelled));
    assert_eq!(client.cancel("nobody", "").await.unwrap_err().code(), Code::NotFound);
    // The worker let go of its query, so it is the same one that serves the next.
    assert_eq!(client.workers().await[0].worker_id, 1);
    assert_eq!(client.execute(query(&json!(3))).await.result(), json!({"echo": 3}));
}

#[tokio::test]
async fn worker_that_ignores_a_cancel_is_stopped_and_replaced() {
    let settings = "min = 1\nmax = 1\ncancel_grace = \"50ms\"\nterm_grace = \"1s\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    for (steps, stage) in [
        (json!({"steps": ["ignore_cancel", {"message": 1}, "hang_hard"]}), proto::StopStage::Sigterm),
        (json!({"steps": ["ignore_cancel", "ignore_term", {"message": 1}, "hang_hard"]}), proto::StopStage::Sigkill),
    ] {
        let id = client.submit(query(&steps)).await.unwrap();
        wait_for(&mut client, &id, QueryState::Streaming).await;
        client.cancel(&id, "stop").await.unwrap();
        let events = client.read(&id, 0, usize::MAX).await.unwrap();
        let Some(proto::event::Body::Cancelled(cancelled)) = &events[1].body else { panic!("{events:?}") };
        assert_eq!(cancelled.stage(), stage);
    }
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
    assert_eq!(server.metric(r#"remuda_worker_exits_total{cause="cancel",kind="k"}"#) as u32, 2);
}

#[tokio::test]
async fn query_that_runs_too_long_ends_in_a_timeout() {
    let settings = "min = 1\nmax = 1\ntimeout = \"100ms\"\ncancel_grace = \"1s\"\nterm_grace = \"10s\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    let polite = client.execute(query(&json!({"steps": ["hang"]}))).await;
    assert_eq!(
        polite.error().message,
        "the query ran longer than its timeout of 100ms; the worker let go on the cancel frame"
    );
    assert_eq!(polite.error().reason(), proto::ErrorReason::TimedOut);
    assert_eq!(polite.status.expect("a status").code(), Code::DeadlineExceeded);
    let own = proto::Query {
        timeout: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
        ..query(&json!({"steps": ["hang_hard"]}))
    };
    let stubborn = client.execute(own).await.error();
    assert_eq!(stubborn.message, "the query ran longer than its timeout of 50ms; the worker let go on SIGTERM");
    assert_eq!(stubborn.certificate.expect("it was stopped").cause(), proto::DeathCause::Timeout);
}

#[tokio::test]
async fn client_deadline_is_the_query_deadline() {
    let server = one_worker();
    let mut client = server.client().await;
    let mut request = tonic::Request::new(proto::ExecuteRequest {
        query_id: "with-deadline".to_owned(),
        query: Some(query(&json!({"steps": ["hang"]}))),
    });
    request.set_timeout(Duration::from_millis(200));
    let mut stream = client.pool.execute(request).await.unwrap().into_inner();
    let reading = async { while let Ok(Some(_)) = stream.message().await {} };
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, reading).await.expect("the call ends with its deadline");
    wait_for(&mut client, "with-deadline", QueryState::Error).await;
}

#[tokio::test]
async fn queue_timeout_bounds_the_wait_for_a_worker() {
    let server = one_worker();
    let mut client = server.client().await;
    let blocker = client.submit(query(&json!({"steps": ["hang"]}))).await.unwrap();
    wait_for(&mut client, &blocker, QueryState::Processing).await;
    let impatient = proto::Query {
        queue_timeout: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
        ..query(&json!(1))
    };
    let ended = client.execute(impatient).await;
    let TestEvent::Rejected(message) = ended.last() else { panic!("{ended:?}") };
    assert!(message.starts_with("no worker of kind k was free within "), "{message}");
    assert_eq!(ended.status.expect("a status").code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn submit_is_idempotent_by_the_clients_id() {
    let server = one_worker();
    let mut client = server.client().await;
    let mut submit = async |payload: i32| {
        let request = SubmitRequest { query_id: "mine".to_owned(), query: Some(query(&json!(payload))) };
        client.pool.submit(request).await
    };
    assert!(!submit(1).await.unwrap().into_inner().existed);
    assert!(submit(1).await.unwrap().into_inner().existed);
    let conflict = submit(2).await.unwrap_err();
    assert_eq!(conflict.code(), Code::AlreadyExists);
    assert_eq!(
        conflict.message(),
        "query mine exists with another body; submit it again unchanged, or choose another id"
    );
    assert_eq!(client.read_all("mine").await, [TestEvent::Message(json!(1)), TestEvent::Complete(json!({"echo": 1}))]);
    assert_eq!(client.workers().await[0].queries_processed, 1);
}

#[tokio::test]
async fn priority_comes_before_arrival() {
    let server = one_worker();
    let mut client = server.client().await;
    let blocker = client.submit(query(&json!({"steps": ["hang"]}))).await.unwrap();
    wait_for(&mut client, &blocker, QueryState::Processing).await;
    let mut ids = Vec::new();
    for priority in [5, 1, 5, 0] {
        ids.push(client.submit(proto::Query { priority, ..query(&json!(priority)) }).await.unwrap());
    }
    client.cancel(&blocker, "").await.unwrap();
    let mut started = Vec::new();
    for id in &ids {
        client.read_all(id).await;
        let request = proto::GetQueryRequest { query_id: id.clone() };
        let info = client.admin.get_query(request).await.unwrap().into_inner().query.unwrap();
        let at = info.started_at.unwrap();
        started.push((at.seconds, at.nanos));
    }
    assert!(started[3] < started[1] && started[1] < started[0] && started[0] < started[2], "{started:?}");
}

#[tokio::test]
async fn full_queue_refuses_with_a_hint_when_to_come_back() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1");
    let server = Server::start(&format!("[queue]\nmax_queries = 2\n{kind}"));
    let mut client = server.client().await;
    let running = client.submit(query(&json!({"steps": ["hang"]}))).await.unwrap();
    wait_for(&mut client, &running, QueryState::Processing).await;
    for _ in 0..2 {
        client.submit(query(&json!(1))).await.unwrap();
    }
    let refused = client.submit(query(&json!(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "the queue is full: 2 queries wait, at most 2 may (queue.max_queries)");
    assert!(refused.get_error_details().retry_info().is_some());
}

#[tokio::test]
async fn execute_of_a_vanished_caller_is_cancelled() {
    let server = one_worker();
    let mut client = server.client().await;
    let request =
        proto::ExecuteRequest { query_id: "left-alone".to_owned(), query: Some(query(&json!({"steps": ["hang"]}))) };
    let stream = client.pool.execute(request).await.unwrap();
    wait_for(&mut client, "left-alone", QueryState::Processing).await;
    drop(stream);
    wait_for(&mut client, "left-alone", QueryState::Cancelled).await;
    assert_eq!(
        client.read_all("left-alone").await,
        [TestEvent::Cancelled("nobody was reading its events any more".to_owned())]
    );
}

#[tokio::test]
async fn queries_are_listed_in_pages_and_by_state() {
    let server = one_worker();
    let mut client = server.client().await;
    for n in 0..5 {
        client.execute_as(&format!("q{n}"), query(&json!(n))).await.unwrap();
    }
    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListQueriesRequest { page_size: 2, page_token, ..Default::default() };
        let page = client.admin.list_queries(request).await.unwrap().into_inner();
        names.extend(page.queries.iter().map(|query| query.query_id.clone()));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["q0", "q1", "q2", "q3", "q4"]);
    let request = proto::ListQueriesRequest { states: vec![QueryState::Error.into()], ..Default::default() };
    assert!(client.admin.list_queries(request).await.unwrap().into_inner().queries.is_empty());
}
