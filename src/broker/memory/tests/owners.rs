//! How many queries of one owner may wait and run.

use super::*;

#[tokio::test]
async fn an_owner_has_so_many_waiting_and_no_more() {
    let broker = broker_with(MemoryLimits { max_queries_per_owner: Some(2), ..LIMITS });
    broker.submit(owned("a", "x")).await.unwrap();
    broker.submit(owned("b", "x")).await.unwrap();
    let full = SubmitError::OwnerQueueFull { owner: "x".into(), waiting: 2, limit: 2 };
    assert!(full.to_string().contains("queue.max_queries_per_owner"));
    assert_eq!(broker.submit(owned("c", "x")).await, Err(full));
    broker.submit(owned("d", "y")).await.unwrap();
    broker.submit(query("e", 0)).await.unwrap();

    let running = claim(&broker).await.unwrap();
    broker.submit(owned("c", "x")).await.unwrap();
    running.lease.release().await;
    assert_eq!(broker.waiting("k"), 5, "what was accepted once is never refused");
    broker.close().await;
    assert_eq!(broker.0.owners.len(), 0);
}

#[tokio::test]
async fn an_owner_runs_so_many_at_once_and_is_in_nobodys_way() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(1), ..LIMITS });
    for name in ["x1", "x2", "x3"] {
        broker.submit(owned(name, "x")).await.unwrap();
    }
    broker.submit(owned("y1", "y")).await.unwrap();
    let first = claim(&broker).await.unwrap();
    assert_eq!(first.lease.query().as_str(), "x1");
    let other = claim(&broker).await.unwrap();
    assert_eq!(other.lease.query().as_str(), "y1");
    assert!(claim(&broker).await.is_none());
    assert_eq!((broker.open("k"), broker.waiting("k")), (0, 2), "those that stand aside are not open");

    drop(first);
    timeout(Duration::from_secs(1), broker.arrival()).await.expect("that one may be tried is announced");
    assert_eq!(broker.open("k"), 1);
    // It is gone before it is tried: the next one comes in its place.
    broker.cancel(&id("x2"), "").await.unwrap();
    let next = claim(&broker).await.unwrap();
    assert_eq!(next.lease.query().as_str(), "x3");
    next.lease.release().await;
    assert_eq!(claim(&broker).await.unwrap().lease.query().as_str(), "x3");
    drop(other);
    assert_eq!(broker.0.owners.len(), 0);
}

#[tokio::test]
async fn an_owners_limit_holds_over_all_kinds_and_through_a_retry() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(1), ..LIMITS });
    broker.submit(owned("here", "x")).await.unwrap();
    let mut there = owned("there", "x");
    there.spec.kind = "other".into();
    broker.submit(there).await.unwrap();
    let claimant = Claimant { kind: "other", worker: WorkerId(2), scope: Scope::Open, takes_lane: false };

    let here = claim(&broker).await.unwrap();
    assert!(broker.claim(claimant).await.unwrap().is_none());
    let failure = Failure::new(FailureReason::WorkerDied, "died");
    let retrying = Retrying { failed_attempt: 1, max_attempts: 2, delay: Duration::ZERO, failure };
    here.lease.finish(Vec::new(), Ending::Retry(retrying)).await.unwrap();

    let there = broker.claim(claimant).await.unwrap().expect("the other one does not run any more");
    assert!(claim(&broker).await.is_none());
    assert_eq!(broker.open("k"), 0);
    drop(there);
    assert_eq!(claim(&broker).await.unwrap().lease.tries().attempt, 2);
}
