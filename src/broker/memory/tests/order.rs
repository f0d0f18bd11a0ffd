//! Order of service: fair shares, aging, and random operations against the reference model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{reference::Reference, *};
use crate::broker::Lease;

const STEP: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
enum Act {
    Submit { priority: u32, owner: Option<u8>, lane: Option<u8> },
    Claim { worker: u64, scope: ClaimScope, takes_lane: bool },
    Cancel(prop::sample::Index),
    Finish(prop::sample::Index),
    Release(prop::sample::Index),
    Hold { lane: u8, worker: u64 },
    LetGo { worker: u64, lane: Option<u8> },
    Wait(u32),
}

const LANES: u8 = 3;
const WORKERS: u64 = 3;

fn act() -> impl Strategy<Value = Act> {
    let scope = prop_oneof![3 => Just(ClaimScope::Open), 1 => Just(ClaimScope::Held)];
    let index = any::<prop::sample::Index>;
    let (owner, lane) = (prop::option::of(0..3_u8), prop::option::of(0..LANES));
    prop_oneof![
        8 => (0..4_u32, owner, lane.clone()).prop_map(|(priority, owner, lane)| Act::Submit { priority, owner, lane }),
        6 => (0..WORKERS, scope, any::<bool>())
            .prop_map(|(worker, scope, takes_lane)| Act::Claim { worker, scope, takes_lane }),
        2 => index().prop_map(Act::Cancel),
        2 => index().prop_map(Act::Finish),
        1 => index().prop_map(Act::Release),
        1 => (0..LANES, 0..WORKERS).prop_map(|(lane, worker)| Act::Hold { lane, worker }),
        1 => (0..WORKERS, lane).prop_map(|(worker, lane)| Act::LetGo { worker, lane }),
        2 => (1..25_u32).prop_map(Act::Wait),
    ]
}

/// The broker and its plain model, side by side.
struct Pair {
    broker: Arc<MemoryBroker>,
    model: Reference,
    aging: Option<Duration>,
    start: Instant,
    now: Instant,
    submitted: BTreeMap<u64, Instant>,
    leases: BTreeMap<u64, Lease>,
}

fn lane_name(lane: u8) -> Arc<str> {
    format!("lane {lane}").into()
}

impl Pair {
    fn new(aging: Option<Duration>, max_running: Option<usize>) -> Self {
        let broker = broker_with(MemoryLimits { aging, max_running_per_owner: max_running, ..LIMITS });
        broker.kind_state_or_create(&"k".into());
        // The broker's own clock has begun a little earlier; half a second keeps both away from the steps.
        let start = Instant::now() + Duration::from_millis(500);
        let model = Reference::new(max_running);
        Self { broker, model, aging, start, now: start, submitted: BTreeMap::new(), leases: BTreeMap::new() }
    }

    fn epoch(&self) -> u64 {
        self.aging.map_or(0, |step| (self.now - self.start).as_secs() / step.as_secs())
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Submit { priority, owner, lane } => self.submit(priority, owner, lane),
            Act::Claim { worker, scope, takes_lane } => self.claim(worker, scope, takes_lane),
            Act::Cancel(index) => {
                if let Some(number) = pick(index, self.model.waiting.iter().map(|query| query.number)) {
                    self.model.cancel(number);
                    let entry = self.broker.find(&id(&number.to_string())).unwrap();
                    assert_eq!(self.broker.cancel_entry(entry, ""), CancelOutcome::Queued);
                }
            }
            Act::Finish(index) => {
                if let Some(number) = pick(index, self.leases.keys().copied()) {
                    self.model.finish(number);
                    drop(self.leases.remove(&number));
                }
            }
            Act::Release(index) => {
                if let Some(number) = pick(index, self.leases.keys().copied()) {
                    self.model.release(number);
                    let lease = self.leases.remove(&number).unwrap();
                    block_on(lease.release());
                }
            }
            Act::Hold { lane, worker } => {
                let held = self.broker.hold_lane("k", &lane_name(lane), WorkerId(worker));
                assert_eq!(held, self.model.hold(lane, worker));
            }
            Act::LetGo { worker, lane } => {
                self.broker.release_lanes("k", WorkerId(worker), lane.map(lane_name).as_deref());
                self.model.release_lanes(worker, lane);
            }
            Act::Wait(seconds) => self.now += Duration::from_secs(seconds.into()),
        }
    }

    fn submit(&mut self, priority: u32, owner: Option<u8>, lane: Option<u8>) {
        let number = self.submitted.len() as u64 + 1;
        let mut new = query(&number.to_string(), priority);
        new.spec.owner = owner.map(|owner| format!("owner {owner}").into());
        new.lane = lane.map(lane_name);
        self.broker.accept(new, None, self.now).unwrap();
        self.submitted.insert(number, self.now);
        self.model.submit(number, priority, (owner, lane), self.epoch());
    }

    fn claim(&mut self, worker: u64, scope: ClaimScope, takes_lane: bool) {
        let claimant = Claimant { kind: "k", worker: WorkerId(worker), scope, takes_lane, notify: None };
        let claimed = self.broker.claim_at(claimant, self.now).map(|claim| claim.lease);
        let number = claimed.as_ref().map(|lease| lease.query().as_str().parse::<u64>().unwrap());
        assert_eq!(number, self.model.claim(worker, scope, takes_lane, self.epoch()));
        self.leases.extend(number.zip(claimed));
    }

    fn assert_same(&self) {
        assert!(self.model.nobody_is_blocked(), "{:?}", self.model);
        assert_eq!(self.broker.waiting_count("k"), self.model.waiting.len());
        assert_eq!(self.broker.open_count("k"), self.model.open().count());
        for worker in 0..WORKERS {
            assert_eq!(self.broker.has_query_for("k", WorkerId(worker)), self.model.waits_for(worker));
        }
        for lane in 0..LANES {
            let holder = self.model.holders.get(&lane).copied().map(WorkerId);
            assert_eq!(self.broker.lane_holder("k", &lane_name(lane)), holder);
        }
        let demand = self.broker.demand("k", 2);
        let oldest = self.model.open().map(|query| query.number).min();
        assert_eq!(demand.oldest, oldest.map(|number| self.submitted[&number]));
        let lanes: Vec<_> = self.model.open_lanes().into_iter().take(2).collect();
        assert_eq!(demand.lanes, lanes.iter().map(|(lane, _)| lane_name(*lane)).collect::<Vec<_>>());
        assert_eq!(demand.lanes_since, lanes.iter().map(|(_, first)| self.submitted[first]).collect::<Vec<_>>());
        assert_eq!((demand.waiting, demand.open), (self.model.waiting.len(), self.model.open().count()));
    }
}

fn pick(index: prop::sample::Index, from: impl Iterator<Item = u64>) -> Option<u64> {
    let all: Vec<u64> = from.collect();
    (!all.is_empty()).then(|| all[index.index(all.len())])
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_and_counts_match_the_reference_model(
        acts in prop::collection::vec(act(), 1..120),
        aging in prop::option::of(Just(STEP)),
        max_running in prop::option::of(1..3_usize),
    ) {
        let mut pair = Pair::new(aging, max_running);
        for act in &acts {
            pair.act(act);
            pair.assert_same();
        }
        // Nothing is left behind: every throttled query is resumed.
        while !pair.model.waiting.is_empty() || !pair.leases.is_empty() {
            for worker in 0..WORKERS {
                pair.act(&Act::LetGo { worker, lane: None });
                pair.act(&Act::Claim { worker, scope: ClaimScope::Open, takes_lane: false });
            }
            let finished: Vec<u64> = pair.leases.keys().copied().collect();
            prop_assert!(!finished.is_empty(), "{:?}", pair.model.waiting);
            for number in finished {
                pair.model.finish(number);
                drop(pair.leases.remove(&number));
            }
            pair.assert_same();
        }
        prop_assert!(pair.broker.kind_state_or_create(&"k".into()).queue.size() <= 100);
        prop_assert_eq!(pair.broker.owners.len(), 0);
    }
}

#[tokio::test]
async fn owner_with_few_queries_does_not_wait_for_one_with_many() {
    let broker = broker_with(MemoryLimits { max_queries: 2_000, ..LIMITS });
    for n in 0..1_000 {
        broker.submit(owned(&format!("many{n}"), "many")).await.unwrap();
    }
    for n in 0..10 {
        broker.submit(owned(&format!("few{n}"), "few")).await.unwrap();
    }
    let mut first = Vec::new();
    for _ in 0..20 {
        first.extend(claimed_id(&broker).await);
    }
    assert_eq!(first.iter().filter(|id| id.starts_with("few")).count(), 10, "{first:?}");
    assert_eq!(claimed_id(&broker).await.as_deref(), Some("many10"), "the rest is first come, first served");
}

#[test]
fn aging_query_does_not_starve_under_urgent_ones() {
    let broker = broker_with(MemoryLimits { aging: Some(STEP), ..LIMITS });
    let mut now = Instant::now();
    for n in 0..5 {
        broker.accept(query(&format!("patient{n}"), 3), None, now).unwrap();
    }
    let mut served = 0;
    let mut rounds = 0;
    while served < 5 {
        rounds += 1;
        now += Duration::from_secs(1);
        broker.accept(query(&format!("urgent{rounds}"), 0), None, now).unwrap();
        broker.accept(query(&format!("urgent{rounds}b"), 0), None, now).unwrap();
        let claimant =
            Claimant { kind: "k", worker: WorkerId(1), scope: ClaimScope::Open, takes_lane: false, notify: None };
        let claim = broker.claim_at(claimant, now).unwrap();
        served += usize::from(claim.lease.query().as_str().starts_with("patient"));
        assert!(served == 0 || rounds >= 30, "after three steps, not before");
        assert!(rounds < 200, "starved");
    }
}
