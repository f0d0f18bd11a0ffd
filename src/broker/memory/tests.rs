//! The memory broker through its public face.

mod arrivals;
mod batches;
mod full;
mod lanes;
mod order;
mod owners;
mod recovery;
mod reference;

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    record::{Backpressure, FinishResult},
    *,
};
use crate::{
    broker::{AppendError, ClaimScope, Ending, LeaseLost, LeaseStatus, NoSuchQuery, Output, next_events},
    metrics::Metrics,
    model::{Event, EventBody, Failure, FailureReason, Outcome, QuerySpec, Retrying, StopStage, WorkerId},
    protocol::JsonText,
};

const LIMITS: MemoryLimits = MemoryLimits {
    max_queries: 1_000,
    max_waiting_bytes: usize::MAX,
    max_events: 10_000,
    max_bytes: 1_000_000,
    overflow: Overflow::Gap,
    max_stall: Duration::from_millis(50),
    retention: Duration::from_mins(1),
    max_ended: 1_000,
    max_ended_bytes: usize::MAX,
    max_dead: 100,
    max_dead_bytes: usize::MAX,
    max_dead_age: Duration::from_hours(1),
    aging: None,
    max_queries_per_owner: None,
    max_running_per_owner: None,
};

fn broker_with(limits: MemoryLimits) -> Arc<MemoryBroker> {
    Arc::new(MemoryBroker::new(limits, Metrics::new().query.clone()))
}

fn broker() -> Arc<MemoryBroker> {
    broker_with(LIMITS)
}

fn json(text: &str) -> JsonText {
    JsonText::parse(text.to_owned()).unwrap()
}

fn query(id: &str, priority: u32) -> NewQuery {
    let spec = QuerySpec {
        kind: "k".into(),
        query_type: None,
        payload: json("{}"),
        priority,
        key: None,
        owner: None,
        queue_timeout: None,
        options: None,
        reject_if_busy: false,
    };
    NewQuery { id: QueryId::parse(id).unwrap(), spec, deadline: None, abandon_after: None, lane: None, trace: None }
}

fn owned(id: &str, owner: &str) -> NewQuery {
    let mut query = query(id, 0);
    query.spec.owner = Some(owner.into());
    query
}

fn id(text: &str) -> QueryId {
    QueryId::parse(text).unwrap()
}

const CLAIMANT: Claimant<'_> =
    Claimant { kind: "k", worker: WorkerId(1), scope: ClaimScope::Open, takes_lane: false, notify: None };

async fn claim(broker: &Arc<MemoryBroker>) -> Option<Claim> {
    broker.claim(CLAIMANT).await.unwrap()
}

async fn claimed_id(broker: &Arc<MemoryBroker>) -> Option<String> {
    let claim = claim(broker).await?;
    let id = claim.lease.query().to_string();
    claim.lease.finish(Vec::new(), Ending::plain(complete())).await.unwrap();
    Some(id)
}

fn complete() -> Outcome {
    Outcome::Complete { result: json("1") }
}

fn message(n: usize) -> Output {
    Output::Message(json(&n.to_string()))
}

async fn read_all(broker: &Arc<MemoryBroker>, query: &str, from: u64) -> Vec<Event> {
    let mut reader = broker.read(&id(query), from).await.unwrap();
    let mut events = Vec::new();
    loop {
        let batch = timeout(Duration::from_secs(10), next_events(&mut reader)).await.expect("the log ends").unwrap();
        if batch.is_empty() {
            return events;
        }
        events.extend(batch);
    }
}

/// Outcome of a query; there must be exactly one final event, and it must be the last.
async fn ending(broker: &Arc<MemoryBroker>, query: &str) -> Outcome {
    let events = read_all(broker, query, 0).await;
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Ended(outcome) => Some(outcome.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 1, "{events:?}");
    assert!(matches!(events.last().unwrap().body, EventBody::Ended(_)));
    ends.into_iter().next().unwrap()
}

#[tokio::test]
async fn queries_are_served_by_priority_and_then_in_order_of_arrival() {
    let broker = broker();
    for (id, priority) in [("a", 5), ("b", 0), ("c", 5), ("d", 0), ("e", 1)] {
        broker.submit(query(id, priority)).await.unwrap();
    }
    let mut order = Vec::new();
    while let Some(id) = claimed_id(&broker).await {
        order.push(id);
    }
    assert_eq!(order, ["b", "d", "e", "a", "c"]);
}

#[tokio::test]
async fn released_query_keeps_its_place_and_its_attempts() {
    let broker = broker();
    broker.submit(query("first", 0)).await.unwrap();
    broker.submit(query("second", 0)).await.unwrap();
    let taken = claim(&broker).await.unwrap();
    taken.lease.release().await;
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("a release is announced");
    assert_eq!(broker.waiting_count("k"), 2);
    let again = claim(&broker).await.unwrap();
    assert_eq!((again.lease.query().as_str(), again.lease.attempts().attempt), ("first", 1));
}

#[tokio::test]
async fn queue_limit_counts_waiting_queries_only() {
    let broker = broker_with(MemoryLimits { max_queries: 2, ..LIMITS });
    broker.submit(query("a", 0)).await.unwrap();
    broker.submit(query("b", 0)).await.unwrap();
    let full = SubmitError::QueueFull { waiting: 2, limit: 2 };
    assert_eq!(broker.submit(query("c", 0)).await, Err(full));
    broker.cancel(&id("a"), "").await.unwrap();
    broker.submit(query("c", 0)).await.unwrap();
    let _running = claim(&broker).await.unwrap();
    broker.submit(query("d", 0)).await.unwrap();
}

#[tokio::test]
async fn repeated_submit_is_one_query_and_another_body_is_refused() {
    let broker = broker();
    let first = broker.submit(query("a", 0)).await.unwrap();
    assert_eq!(first, Submitted { state: QueryState::Pending, existed: false });
    claimed_id(&broker).await.unwrap();
    let second = broker.submit(query("a", 0)).await.unwrap();
    assert_eq!(second, Submitted { state: QueryState::Complete, existed: true });
    assert_eq!(broker.submit(query("a", 1)).await, Err(SubmitError::Conflict { id: id("a") }));
    assert_eq!(broker.waiting_count("k"), 0);
}

#[tokio::test]
async fn readers_see_everything_once_from_where_they_ask() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let mut lease = claim(&broker).await.unwrap().lease;
    let during = tokio::spawn({
        let broker = broker.clone();
        async move { read_all(&broker, "a", 0).await }
    });
    for batch in 0..100 {
        lease.append(&mut (0..10).map(|n| message(batch * 10 + n)).collect()).await.unwrap();
        tokio::task::yield_now().await;
    }
    lease.finish(vec![Output::Session("s".into())], Ending::plain(complete())).await.unwrap();
    for (from, events) in [(0, during.await.unwrap()), (0, read_all(&broker, "a", 0).await)] {
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (from..1_002).collect::<Vec<_>>());
    }
    assert_eq!(read_all(&broker, "a", 1_000).await.len(), 2);
    // Beyond the end there is still the end.
    let beyond = read_all(&broker, "a", 5_000).await;
    assert_eq!(beyond.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1_001]);
}

#[tokio::test]
async fn cancel_notifies_the_claimant() {
    let broker = broker();
    let notify = Arc::default();
    broker.submit(query("a", 0)).await.unwrap();
    let claim = broker.claim(Claimant { notify: Some(&notify), ..CLAIMANT }).await.unwrap().unwrap();
    assert!(timeout(Duration::from_millis(20), notify.notified()).await.is_err(), "nothing is to be heard yet");
    broker.cancel(&id("a"), "enough").await.unwrap();
    timeout(Duration::from_secs(10), notify.notified()).await.expect("the claimant is notified");
    assert_eq!(claim.lease.status(), LeaseStatus::CancelRequested { reason: "enough".into() });
}

#[tokio::test]
async fn cancel_ends_a_waiting_query_at_once_and_asks_a_running_one() {
    let broker = broker();
    broker.submit(query("waits", 1)).await.unwrap();
    assert_eq!(broker.cancel(&id("waits"), "why").await, Ok(CancelOutcome::Queued));
    assert_eq!(broker.cancel(&id("waits"), "").await, Ok(CancelOutcome::Ended(QueryState::Cancelled)));
    assert_eq!(ending(&broker, "waits").await, Outcome::Cancelled { reason: "why".into(), stage: StopStage::Queued });
    assert!(claim(&broker).await.is_none());

    broker.submit(query("runs", 0)).await.unwrap();
    let lease = claim(&broker).await.unwrap().lease;
    assert_eq!(lease.status(), LeaseStatus::Active);
    assert_eq!(broker.cancel(&id("runs"), "why").await, Ok(CancelOutcome::Running(QueryState::Processing)));
    assert_eq!(broker.cancel(&id("runs"), "").await, Ok(CancelOutcome::Cancelling(QueryState::Processing)));
    assert_eq!(lease.status(), LeaseStatus::CancelRequested { reason: "why".into() });
    // The worker was done just then: who asked for the cancel was told that it would be cancelled.
    assert_eq!(lease.finish(Vec::new(), Ending::plain(complete())).await, Ok(QueryState::Cancelled));
    let outcome = ending(&broker, "runs").await;
    assert_eq!(outcome, Outcome::Cancelled { reason: "why".into(), stage: StopStage::CancelFrame });
    assert_eq!(broker.cancel(&id("nobody"), "").await, Err(NoSuchQuery(id("nobody")).into()));
}

#[tokio::test]
async fn cancel_before_a_release_ends_the_query() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let lease = claim(&broker).await.unwrap().lease;
    broker.cancel(&id("a"), "changed my mind").await.unwrap();
    lease.release().await;
    let outcome = ending(&broker, "a").await;
    assert_eq!(outcome, Outcome::Cancelled { reason: "changed my mind".into(), stage: StopStage::Queued });
    assert_eq!(broker.waiting_count("k"), 0);
}

#[tokio::test]
async fn stale_lease_is_refused() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let entry = broker.find(&id("a")).unwrap();
    let held = entry.claim(CLAIMANT, queue::RankTag::default()).unwrap();
    assert_eq!(entry.append(held.token.wrapping_add(1), &mut vec![message(1)], Backpressure::Apply), Err(LeaseLost));
    assert_eq!(
        entry.finish(held.token.wrapping_add(1), Vec::new(), Ending::plain(complete()), Instant::now()),
        Err(LeaseLost)
    );
    assert_eq!(
        entry.finish(held.token, Vec::new(), Ending::plain(complete()), Instant::now()),
        Ok(FinishResult::Over(QueryState::Complete))
    );
    assert_eq!(entry.append(held.token, &mut vec![message(1)], Backpressure::Ignore), Err(LeaseLost));
    assert_eq!(entry.finish(held.token, Vec::new(), Ending::plain(complete()), Instant::now()), Err(LeaseLost));
}

#[tokio::test]
async fn dropped_lease_still_ends_its_query() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    drop(claim(&broker).await.unwrap());
    assert!(matches!(ending(&broker, "a").await, Outcome::Error(failure) if failure.message.contains("lost track")));
}

#[tokio::test]
async fn ended_queries_are_evicted_by_number_and_by_age() {
    let broker = broker_with(MemoryLimits { max_ended: 2, ..LIMITS });
    for name in ["a", "b", "c"] {
        broker.submit(query(name, 0)).await.unwrap();
        claimed_id(&broker).await.unwrap();
    }
    assert_eq!(broker.get(&id("a")).await, Err(NoSuchQuery(id("a")).into()));
    assert!(broker.get(&id("c")).await.is_ok());
    broker.expire(Instant::now() + Duration::from_secs(61));
    assert!(broker.get(&id("c")).await.is_err());
    assert!(broker.state_counts().iter().all(|(_, _, count)| *count == 0));
}

#[tokio::test]
async fn expired_query_is_rejected_and_never_dispatched() {
    let broker = broker();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (broker, stop) = (broker.clone(), stop.clone());
        async move { broker.run(stop).await }
    });
    let mut impatient = query("impatient", 0);
    impatient.spec.queue_timeout = Some(Duration::from_millis(20));
    broker.submit(impatient).await.unwrap();
    let outcome = ending(&broker, "impatient").await;
    assert!(matches!(outcome, Outcome::Rejected { reason: RejectReason::Deadline, .. }), "{outcome:?}");
    assert!(claim(&broker).await.is_none());
    let late = NewQuery { deadline: Some(Duration::ZERO), ..query("late", 0) };
    broker.submit(late).await.unwrap();
    assert!(claim(&broker).await.is_none());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn abandoned_query_is_cancelled_unless_a_reader_comes_back() {
    let broker = broker();
    let patience = Duration::from_secs(5);
    broker.submit(NewQuery { abandon_after: Some(patience), ..query("a", 0) }).await.unwrap();
    let first = broker.read(&id("a"), 0).await.unwrap();
    let second = broker.read(&id("a"), 0).await.unwrap();
    drop(first);
    broker.expire(Instant::now() + patience);
    assert_eq!(broker.get(&id("a")).await.unwrap().state, QueryState::Pending);
    drop(second);
    let back = broker.read(&id("a"), 0).await.unwrap();
    broker.expire(Instant::now() + patience);
    assert_eq!(broker.get(&id("a")).await.unwrap().state, QueryState::Pending);
    drop(back);
    broker.expire(Instant::now() + patience);
    assert_eq!(broker.get(&id("a")).await.unwrap().state, QueryState::Cancelled);
}

#[tokio::test]
async fn close_rejects_waiting_queries_and_accepts_no_more() {
    let broker = broker();
    for name in ["a", "b", "c"] {
        broker.submit(query(name, 0)).await.unwrap();
    }
    let running = claim(&broker).await.unwrap();
    assert_eq!(broker.close().await, 2);
    assert!(matches!(ending(&broker, "b").await, Outcome::Rejected { reason: RejectReason::Shutdown, .. }));
    assert_eq!(broker.submit(query("d", 0)).await, Err(SubmitError::Closed));
    running.lease.finish(Vec::new(), Ending::plain(complete())).await.unwrap();
    assert_eq!(ending(&broker, "a").await, complete());
}

#[tokio::test]
async fn listings_come_in_order_of_arrival_and_in_pages() {
    let broker = broker();
    for n in 0..5 {
        broker.submit(query(&format!("q{n}"), 9 - n)).await.unwrap();
    }
    broker.cancel(&id("q1"), "").await.unwrap();
    let names = |page: &QueryPage| page.queries.iter().map(|query| query.id.to_string()).collect::<Vec<_>>();
    let first = broker.list(&QueryFilter::default(), Page { after: 0, size: 3 }).await.unwrap();
    assert_eq!(names(&first), ["q0", "q1", "q2"]);
    let rest = broker.list(&QueryFilter::default(), Page { after: first.next.unwrap(), size: 3 }).await.unwrap();
    assert_eq!((names(&rest), rest.next), (vec!["q3".to_owned(), "q4".to_owned()], None));
    let cancelled = QueryFilter { states: vec![QueryState::Cancelled], kind: Some("k".to_owned()) };
    assert_eq!(names(&broker.list(&cancelled, Page { after: 0, size: 10 }).await.unwrap()), ["q1"]);
    let elsewhere = QueryFilter { kind: Some("other".to_owned()), ..Default::default() };
    assert!(broker.list(&elsewhere, Page { after: 0, size: 10 }).await.unwrap().queries.is_empty());
}

#[tokio::test]
async fn many_cancelled_entries_do_not_stay_in_the_heap() {
    let broker = broker_with(MemoryLimits { max_ended: 10, ..LIMITS });
    for n in 0..5_000 {
        let name = format!("q{n}");
        broker.submit(query(&name, 0)).await.unwrap();
        broker.cancel(&id(&name), "").await.unwrap();
    }
    broker.submit(query("alive", 0)).await.unwrap();
    assert!(broker.kind_state_or_create(&Arc::from("k")).queue.size() < 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn complete_and_cancel_racing_leave_exactly_one_end() {
    let broker = broker();
    for round in 0..500 {
        let name = format!("r{round}");
        broker.submit(query(&name, 0)).await.unwrap();
        let lease = claim(&broker).await.unwrap().lease;
        let cancel = tokio::spawn({
            let (broker, name) = (broker.clone(), name.clone());
            async move { broker.cancel(&id(&name), "race").await.unwrap() }
        });
        let finished = lease.finish(vec![message(1)], Ending::plain(complete())).await.unwrap();
        let found = cancel.await.unwrap();
        let state = ending(&broker, &name).await.state();
        assert_eq!(state, finished);
        match found {
            CancelOutcome::Ended(seen) => assert_eq!((seen, state), (QueryState::Complete, QueryState::Complete)),
            CancelOutcome::Running(_) => assert_eq!(state, QueryState::Cancelled),
            other => panic!("{other:?}"),
        }
    }
}
