//! Complete against cancel: however they race, a query has one end, and whoever asked was told the truth about it.

use std::sync::Arc;

use futures_util::FutureExt;
use shuttle::{future::block_on, thread};

use super::*;
use crate::{
    broker::{ClaimScope, Ending, Lease, LeaseLost, next_events},
    metrics::Metrics,
    model::{EventBody, Outcome, QuerySpec, StopStage, WorkerId},
    model_check::{exhaust, sample},
    protocol::JsonText,
};

const LIMITS: MemoryLimits = MemoryLimits {
    max_queries: 10,
    max_waiting_bytes: usize::MAX,
    max_events: 10,
    max_bytes: 1_000,
    overflow: Overflow::Gap,
    max_stall: Duration::ZERO,
    retention: Duration::from_hours(1),
    max_ended: 10,
    max_ended_bytes: usize::MAX,
    max_dead: 10,
    max_dead_bytes: usize::MAX,
    max_dead_age: Duration::from_hours(1),
    aging: None,
    max_queries_per_owner: None,
    max_running_per_owner: None,
};

fn id() -> QueryId {
    QueryId::parse("q").unwrap()
}

fn query(id: &str) -> NewQuery {
    let spec = QuerySpec {
        kind: "k".into(),
        query_type: None,
        payload: JsonText::parse("{}".to_owned()).unwrap(),
        priority: 0,
        key: None,
        owner: Some("owner".into()),
        queue_timeout: None,
        options: None,
        reject_if_busy: false,
    };
    NewQuery {
        id: QueryId::parse(id).unwrap(),
        spec,
        deadline: None,
        abandon_after: None,
        lane: Some("lane".into()),
        trace: None,
    }
}

fn submit(broker: &Arc<MemoryBroker>, id: &str) {
    broker.accept(query(id), None, Instant::now()).unwrap();
}

/// A broker with one query that waits.
fn broker(metrics: &Arc<QueryMetrics>) -> Arc<MemoryBroker> {
    let broker = Arc::new(MemoryBroker::new(LIMITS, metrics.clone()));
    submit(&broker, "q");
    broker
}

fn claim(broker: &Arc<MemoryBroker>, worker: u64) -> Option<Lease> {
    claim_with(broker, worker, None)
}

fn claim_with(broker: &Arc<MemoryBroker>, worker: u64, notify: Option<&Arc<Notify>>) -> Option<Lease> {
    let claimant = Claimant { kind: "k", worker: WorkerId(worker), scope: ClaimScope::Open, takes_lane: false, notify };
    broker.claim_at(claimant, Instant::now()).map(|claim| claim.lease)
}

fn complete(lease: Lease) -> Result<QueryState, LeaseLost> {
    let result = JsonText::parse("1".to_owned()).unwrap();
    block_on(lease.finish(Vec::new(), Ending::plain(Outcome::Complete { result })))
}

fn cancel(broker: &Arc<MemoryBroker>) -> CancelOutcome {
    block_on(broker.cancel(&id(), "enough")).unwrap()
}

/// Outcome of the query. It must have exactly one end, be counted once, and be queued nowhere.
#[track_caller]
fn end_of(broker: &Arc<MemoryBroker>) -> Outcome {
    let mut reader = block_on(broker.read(&id(), 0)).unwrap();
    let mut events = block_on(next_events(&mut reader)).unwrap();
    let ends = events.iter().filter(|event| matches!(event.body, EventBody::Ended(_))).count();
    assert_eq!(ends, 1, "{events:?}");
    let Some(EventBody::Ended(outcome)) = events.pop().map(|event| event.body) else {
        panic!("something came after the end");
    };
    assert_eq!(block_on(broker.get(&id())).unwrap().state, outcome.state());
    let counted: Vec<_> = broker.state_counts().into_iter().filter(|(_, _, count)| *count > 0).collect();
    assert_eq!(counted, [("k".into(), outcome.state(), 1)]);
    assert_eq!((broker.unfinished_count(), broker.waiting.queries.load(SeqCst), broker.open_count("k")), (0, 0, 0));
    assert_eq!(broker.waiting.bytes.load(SeqCst), 0);
    assert!(claim(broker, 9).is_none(), "an ended query was claimed");
    outcome
}

/// Asserts that the answer to a cancel was true.
#[track_caller]
fn assert_truthful(found: CancelOutcome, end: &Outcome) {
    match found {
        CancelOutcome::Ended(state) => assert_eq!(state, end.state()),
        CancelOutcome::Queued => assert!(matches!(end, Outcome::Cancelled { stage: StopStage::Queued, .. }), "{end:?}"),
        CancelOutcome::Running(_) | CancelOutcome::Cancelling(_) => assert_eq!(end.state(), QueryState::Cancelled),
    }
}

fn metrics() -> Arc<QueryMetrics> {
    Metrics::new().query.clone()
}

#[test]
fn complete_against_cancel_in_every_order() {
    let metrics = metrics();
    exhaust(move || {
        let broker = broker(&metrics);
        let notify = Arc::default();
        let lease = claim_with(&broker, 1, Some(&notify)).unwrap();
        let finishing = thread::spawn(move || complete(lease));
        let found = cancel(&broker);
        let finished = finishing.join().unwrap();

        let end = end_of(&broker);
        assert_truthful(found, &end);
        assert_eq!(finished, Ok(end.state()));
        let accepted = matches!(found, CancelOutcome::Running(_));
        assert_eq!(accepted, end.state() == QueryState::Cancelled);
        assert_eq!(accepted, notify.notified().now_or_never().is_some(), "the holder is called if it is to stop");
    });
}

#[test]
fn complete_against_two_cancels() {
    let metrics = metrics();
    sample(move || {
        let broker = broker(&metrics);
        let lease = claim(&broker, 1).unwrap();
        let finishing = thread::spawn(move || complete(lease));
        let cancelling: Vec<_> = (0..2)
            .map(|_| {
                let broker = broker.clone();
                thread::spawn(move || cancel(&broker))
            })
            .collect();
        let found: Vec<_> = cancelling.into_iter().map(|cancelling| cancelling.join().unwrap()).collect();
        let finished = finishing.join().unwrap();

        let end = end_of(&broker);
        for found in &found {
            assert_truthful(*found, &end);
        }
        assert_eq!(finished, Ok(end.state()));
        let accepted = found.iter().filter(|found| matches!(found, CancelOutcome::Running(_))).count();
        assert_eq!(accepted, usize::from(end.state() == QueryState::Cancelled), "{found:?}");
    });
}

#[test]
fn dropped_lease_against_cancel() {
    let metrics = metrics();
    sample(move || {
        let broker = broker(&metrics);
        let lease = claim(&broker, 1).unwrap();
        let dropping = thread::spawn(move || drop(lease));
        let found = cancel(&broker);
        dropping.join().unwrap();

        let end = end_of(&broker);
        assert_truthful(found, &end);
        let wanted = match found {
            CancelOutcome::Running(_) => QueryState::Cancelled,
            _ => QueryState::Error,
        };
        assert_eq!(end.state(), wanted);
    });
}

#[test]
fn released_claim_against_cancel_and_another_claim() {
    let metrics = metrics();
    sample(move || {
        let broker = broker(&metrics);
        let first = claim(&broker, 1).unwrap();
        let giving_back = thread::spawn(move || block_on(first.release()));
        let second = broker.clone();
        let claiming = thread::spawn(move || claim(&second, 2).map(complete));
        let found = cancel(&broker);
        giving_back.join().unwrap();
        let finished = claiming.join().unwrap();

        let end = end_of(&broker);
        assert_truthful(found, &end);
        if let Some(finished) = &finished {
            assert_eq!(*finished, Ok(end.state()), "the second claim was the only one left");
        }
        let attempts = block_on(broker.get(&id())).unwrap().attempts;
        assert_eq!(attempts, u32::from(finished.is_some()), "a claim that was given back does not count");
    });
}

#[test]
fn submit_against_its_own_cancel_and_a_claim() {
    let metrics = metrics();
    sample(move || {
        let broker = Arc::new(MemoryBroker::new(LIMITS, metrics.clone()));
        let submitting = broker.clone();
        let submitted = thread::spawn(move || submit(&submitting, "q"));
        let claiming = broker.clone();
        let claimed = thread::spawn(move || claim(&claiming, 1).map(complete));
        let found = block_on(broker.cancel(&id(), "enough"));
        submitted.join().unwrap();
        let finished = claimed.join().unwrap();

        match (found, finished) {
            (Ok(found), _) => assert_truthful(found, &end_of(&broker)),
            (Err(_), Some(finished)) => assert_eq!(finished, Ok(end_of(&broker).state())),
            (Err(_), None) => {
                assert_eq!(broker.open_count("k"), 1, "neither of them came in time");
                complete(claim(&broker, 2).expect("it waits")).unwrap();
                end_of(&broker);
            }
        }
    });
}

/// A query whose owner is at the limit is throttled, and must be resumed even if the other ends just then.
#[test]
fn end_of_a_query_against_a_claim_of_the_next_of_its_owner() {
    let metrics = metrics();
    sample(move || {
        let limits = MemoryLimits { max_running_per_owner: Some(1), ..LIMITS };
        let broker = Arc::new(MemoryBroker::new(limits, metrics.clone()));
        submit(&broker, "q");
        submit(&broker, "next");
        let first = claim(&broker, 1).unwrap();
        let finishing = thread::spawn(move || complete(first));
        let claiming = broker.clone();
        let claimed = thread::spawn(move || claim(&claiming, 2));
        finishing.join().unwrap().unwrap();
        let next = claimed.join().unwrap();
        let next = next.or_else(|| claim(&broker, 3)).expect("it stays throttled");
        complete(next).unwrap();
        assert_eq!((broker.open_count("k"), broker.unfinished_count(), broker.owners.len()), (0, 0, 0));
    });
}
