//! Lanes: who may take what, and that nobody is in another's way.

use super::*;

fn in_lane(id: &str, lane: &str) -> NewQuery {
    NewQuery { lane: Some(lane.into()), ..query(id, 0) }
}

fn take(broker: &Arc<MemoryBroker>, worker: u64, scope: ClaimScope) -> Option<Claim> {
    broker.claim_at(
        Claimant { kind: "k", worker: WorkerId(worker), scope, takes_lane: true, notify: None },
        Instant::now(),
    )
}

fn taken(broker: &Arc<MemoryBroker>, worker: u64, scope: ClaimScope) -> Option<String> {
    take(broker, worker, scope).map(|claim| claim.lease.query().to_string())
}

#[tokio::test]
async fn held_lane_is_for_its_holder_only() {
    let broker = broker();
    for name in ["a1", "a2", "a3"] {
        broker.submit(in_lane(name, "a")).await.unwrap();
    }
    broker.submit(query("free", 5)).await.unwrap();
    broker.submit(in_lane("b1", "b")).await.unwrap();
    assert_eq!(broker.open_count("k"), 5);

    let first = take(&broker, 1, ClaimScope::Open).unwrap();
    assert_eq!((first.lease.query().as_str(), first.lane.as_deref()), ("a1", Some("a")));
    assert_eq!((broker.lane_holder("k", "a"), broker.open_count("k")), (Some(WorkerId(1)), 2));
    assert!(broker.has_query_for("k", WorkerId(1)) && !broker.has_query_for("k", WorkerId(2)));
    assert!(!broker.hold_lane("k", &"a".into(), WorkerId(2)));

    assert_eq!(taken(&broker, 2, ClaimScope::Held), None);
    assert_eq!(taken(&broker, 2, ClaimScope::Open).as_deref(), Some("b1"));
    assert_eq!(taken(&broker, 2, ClaimScope::Open).as_deref(), Some("free"));
    assert_eq!(taken(&broker, 2, ClaimScope::Open), None);
    assert_eq!(taken(&broker, 1, ClaimScope::Held).as_deref(), Some("a2"));

    broker.release_lanes("k", WorkerId(1), None);
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("an opened lane is announced");
    assert_eq!((broker.lane_holder("k", "a"), broker.open_count("k")), (None, 1));
    assert_eq!(taken(&broker, 2, ClaimScope::Open).as_deref(), Some("a3"));
}

#[tokio::test]
async fn lane_is_held_until_it_is_released() {
    let broker = broker();
    assert!(broker.hold_lane("k", &"a".into(), WorkerId(1)));
    broker.submit(in_lane("a1", "a")).await.unwrap();
    assert_eq!((broker.open_count("k"), broker.waiting_count("k")), (0, 1));
    assert_eq!(taken(&broker, 1, ClaimScope::Open).as_deref(), Some("a1"));
    broker.reject_waiting("k", RejectReason::CircuitOpen, "").await;
    assert_eq!(broker.lane_holder("k", "a"), Some(WorkerId(1)));
    broker.release_lanes("k", WorkerId(1), Some("another"));
    assert_eq!(broker.lane_holder("k", "a"), Some(WorkerId(1)));
    broker.release_lanes("k", WorkerId(1), Some("a"));
    assert_eq!(broker.lane_holder("k", "a"), None);
    assert_eq!(broker.kind_state_or_create(&"k".into()).queue.size(), 0, "an empty open lane takes no memory");
}

#[tokio::test]
async fn lanes_held_and_released_leave_nothing_behind() {
    let broker = broker();
    for lane in 0..50 {
        broker.submit(in_lane(&format!("q{lane}"), &format!("lane{lane}"))).await.unwrap();
    }
    for _ in 0..100 {
        for lane in 0..50 {
            assert!(broker.hold_lane("k", &format!("lane{lane}").into(), WorkerId(1)));
        }
        broker.release_lanes("k", WorkerId(1), None);
    }
    assert!(broker.kind_state_or_create(&"k".into()).queue.size() < 400);
    assert_eq!(broker.demand("k", 3).lanes, ["lane0", "lane1", "lane2"].map(Arc::from));
    assert_eq!(broker.open_count("k"), 50);
}
