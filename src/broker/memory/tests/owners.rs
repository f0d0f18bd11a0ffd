//! Limits of the waiting and running queries of one owner.

use super::{super::queue::MAX_SKIPPED_PER_CLAIM, *};

#[tokio::test]
async fn owner_waiting_limit_is_enforced() {
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
    assert_eq!(broker.waiting_count("k"), 5, "what was accepted once is never refused");
    broker.close().await;
    assert_eq!(broker.owners.len(), 0);
}

#[tokio::test]
async fn owner_at_its_running_limit_blocks_nobody() {
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
    assert_eq!((broker.open_count("k"), broker.waiting_count("k")), (0, 2), "throttled queries are not open");

    drop(first);
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("that one may be tried is announced");
    assert_eq!(broker.open_count("k"), 1);
    // It is gone before it is tried: the next one comes in its place.
    broker.cancel(&id("x2"), "").await.unwrap();
    let next = claim(&broker).await.unwrap();
    assert_eq!(next.lease.query().as_str(), "x3");
    next.lease.release().await;
    assert_eq!(claim(&broker).await.unwrap().lease.query().as_str(), "x3");
    drop(other);
    assert_eq!(broker.owners.len(), 0);
}

#[tokio::test]
async fn owner_limit_holds_over_all_kinds_and_through_a_retry() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(1), ..LIMITS });
    broker.submit(owned("here", "x")).await.unwrap();
    let mut there = owned("there", "x");
    there.spec.kind = "other".into();
    broker.submit(there).await.unwrap();
    let claimant =
        Claimant { kind: "other", worker: WorkerId(2), scope: ClaimScope::Open, takes_lane: false, notify: None };

    let here = claim(&broker).await.unwrap();
    assert!(broker.claim(claimant).await.unwrap().is_none());
    let failure = Failure::new(FailureReason::WorkerDied, "died");
    let retrying = Retrying { failed_attempt: 1, max_attempts: 2, delay: Duration::ZERO, failure };
    here.lease.finish(Vec::new(), Ending::Retry(retrying)).await.unwrap();

    let there = broker.claim(claimant).await.unwrap().expect("the other one does not run any more");
    assert!(claim(&broker).await.is_none());
    assert_eq!(broker.open_count("k"), 0);
    drop(there);
    assert_eq!(claim(&broker).await.unwrap().lease.attempts().attempt, 2);
}

fn in_lane(id: &str, lane: &str) -> NewQuery {
    NewQuery { lane: Some(lane.into()), ..owned(id, "x") }
}

async fn take(broker: &Arc<MemoryBroker>, worker: u64) -> Option<Claim> {
    let claimant =
        Claimant { kind: "k", worker: WorkerId(worker), scope: ClaimScope::Held, takes_lane: true, notify: None };
    broker.claim(claimant).await.unwrap()
}

#[tokio::test]
async fn query_in_a_held_lane_does_not_stand_for_its_owner() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(2), ..LIMITS });
    for (lane, worker) in [("l1", 1), ("l3", 3), ("l5", 5), ("l6", 6)] {
        assert!(broker.hold_lane("k", &lane.into(), WorkerId(worker)));
    }
    for (name, lane) in [("a", "l5"), ("b", "l6"), ("1b", "l1"), ("1c", "l1"), ("3", "l3")] {
        broker.submit(in_lane(name, lane)).await.unwrap();
    }
    let first = take(&broker, 5).await.unwrap();
    let second = take(&broker, 6).await.unwrap();
    assert!(take(&broker, 1).await.is_none() && take(&broker, 3).await.is_none());
    drop(first);
    let one = take(&broker, 1).await.unwrap();
    assert_eq!(one.lease.query().as_str(), "1b");
    drop(second);
    let three = take(&broker, 3).await.expect("1c, which waits for worker 1, is not in its way");
    assert_eq!(three.lease.query().as_str(), "3");
}

#[tokio::test]
async fn newly_held_lane_lets_its_owner_queue_another_query() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(1), ..LIMITS });
    for (name, lane) in [("a", "la"), ("b", "lb"), ("c", "lc")] {
        broker.submit(in_lane(name, lane)).await.unwrap();
    }
    let first = claim(&broker).await.unwrap();
    assert!(claim(&broker).await.is_none());
    drop(first);
    broker.wait_for_arrival().await;
    assert!(broker.hold_lane("k", &"lb".into(), WorkerId(7)));
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("another came in its place");
    assert_eq!(broker.open_count("k"), 1);
    let running = claim(&broker).await.unwrap();
    assert_eq!(running.lease.query().as_str(), "c");
}

#[tokio::test]
async fn oldest_open_query_is_found_behind_throttled_ones() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(1), max_queries: 10_000, ..LIMITS });
    for n in 0..3_000 {
        broker.submit(owned(&format!("x{n}"), "x")).await.unwrap();
    }
    let _running = claim(&broker).await.unwrap();
    let mut claims = 0;
    while broker.open_count("k") > 0 {
        let before = broker.open_count("k");
        assert!(claim(&broker).await.is_none());
        assert!(
            before - broker.open_count("k") <= MAX_SKIPPED_PER_CLAIM,
            "one claim does not keep the others waiting for long"
        );
        if broker.open_count("k") > 0 {
            timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("others are told to try again");
        }
        claims += 1;
    }
    assert_eq!(claims, 2_999_usize.div_ceil(MAX_SKIPPED_PER_CLAIM));
    broker.submit(owned("y", "y")).await.unwrap();
    let demand = broker.demand("k", 8);
    assert_eq!((demand.open, demand.waiting), (1, 3_000));
    let since = broker.find(&id("y")).unwrap().submitted;
    assert_eq!(demand.oldest, Some(since), "or no worker would be started for it");
    let mut laned = in_lane("z", "lane");
    laned.spec.owner = None;
    assert_eq!(claim(&broker).await.unwrap().lease.query().as_str(), "y");
    broker.submit(laned).await.unwrap();
    assert!(broker.demand("k", 0).oldest.is_some());
}

#[tokio::test]
async fn one_notification_covers_all_resumed_queries() {
    let broker = broker_with(MemoryLimits { max_running_per_owner: Some(2), ..LIMITS });
    for name in ["a", "b", "c", "d"] {
        broker.submit(owned(name, "x")).await.unwrap();
    }
    let running = [claim(&broker).await.unwrap(), claim(&broker).await.unwrap()];
    assert!(claim(&broker).await.is_none());
    drop(running);
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("announced");
    assert_eq!(broker.open_count("k"), 2, "whoever looks after the notice finds both");
    let again = timeout(Duration::from_millis(20), broker.wait_for_arrival()).await;
    assert!(again.is_err(), "two ends before anyone looked are one notice");
}
