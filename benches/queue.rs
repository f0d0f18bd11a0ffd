//! Cost of queueing, claiming and cancelling a query, by the number that wait; and the memory of a waiting one.
//!
//! Everything goes through the broker as the pool sees it, with its index and its counts. The baselines are a bare heap, which
//! knows neither ids nor owners nor lanes, and a bare table of ids.

use std::{
    cell::RefCell,
    collections::{BinaryHeap, HashMap},
    fs,
    future::Future,
    hint::black_box,
    io::{Write, stdout},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use divan::Bencher;
use remuda::{
    broker::{Broker, Claim, ClaimScope, Claimant, MemoryLimits, NewQuery},
    config::Overflow,
    metrics::Metrics,
    model::{QueryId, QuerySpec, WorkerId},
    protocol::JsonText,
};

const WAITING: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Limit of the memory of a waiting query, with all indexes, an id made by the server and a payload of 200 bytes.
const WAITING_QUERY_MAX_BYTES: usize = 700;
const WEIGHED_QUERIES: usize = 1_000_000;
const PAYLOAD_BYTES: usize = 200;

fn main() {
    // Under `cargo test --benches` a bench only has to run.
    if std::env::args().any(|argument| argument == "--bench") {
        weigh();
    }
    divan::main();
}

/// Says how much of the machine's memory a waiting query takes.
fn weigh() {
    let broker = broker();
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
    let before = resident_bytes();
    for _ in 0..WEIGHED_QUERIES {
        // As the request decoder leaves it: not a byte of capacity too much.
        let payload = JsonText::from_checked(&payload);
        submit(&broker, query(payload, Shape::Plain, 0));
    }
    let bytes = (resident_bytes() - before) / WEIGHED_QUERIES;
    let verdict = if bytes <= WAITING_QUERY_MAX_BYTES { "within" } else { "beyond" };
    writeln!(
        stdout(),
        "a waiting query takes {bytes} bytes at {WEIGHED_QUERIES} ({verdict} {WAITING_QUERY_MAX_BYTES})"
    )
    .expect("stdout is open");
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has a line for it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1_024
}

/// The fields of the queries that their order depends on.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Plain,
    /// Ten queries share a lane.
    Lanes,
    /// A hundred owners.
    Owners,
}

const SHAPES: [Shape; 3] = [Shape::Plain, Shape::Lanes, Shape::Owners];

fn cases() -> impl Iterator<Item = (Shape, usize)> {
    SHAPES.into_iter().flat_map(|shape| WAITING.map(|waiting| (shape, waiting)))
}

/// Resolves what never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory broker does not wait here"),
    }
}

fn broker() -> Broker {
    let limits = MemoryLimits {
        max_queries: usize::MAX,
        max_waiting_bytes: usize::MAX,
        max_events: 100,
        max_bytes: 100_000,
        overflow: Overflow::Gap,
        max_stall: Duration::ZERO,
        retention: Duration::from_mins(1),
        max_ended: 100,
        max_ended_bytes: usize::MAX,
        max_dead: 100,
        max_dead_bytes: usize::MAX,
        max_dead_age: Duration::from_mins(1),
        aging: None,
        max_queries_per_owner: None,
        max_running_per_owner: None,
    };
    Broker::memory(limits, Metrics::new().query.clone())
}

fn query(payload: JsonText, shape: Shape, nth: usize) -> NewQuery {
    let spec = QuerySpec {
        kind: KIND.with(Arc::clone),
        query_type: None,
        payload,
        priority: u32::try_from(nth % 4).expect("small"),
        key: None,
        owner: matches!(shape, Shape::Owners).then(|| format!("owner {}", nth % 100).into()),
        queue_timeout: None,
        options: None,
        reject_if_busy: false,
    };
    let lane = matches!(shape, Shape::Lanes).then(|| format!("lane {}", nth / 10).into());
    NewQuery { id: QueryId::generate(), spec, deadline: None, abandon_after: None, lane, trace: None }
}

thread_local! {
    static KIND: Arc<str> = "k".into();
}

fn submit(broker: &Broker, query: NewQuery) {
    now(broker.submit(query)).expect("there is room");
}

fn claim(broker: &Broker) -> Claim {
    let claimant =
        Claimant { kind: "k", worker: WorkerId(1), scope: ClaimScope::Open, takes_lane: false, notify: None };
    now(broker.claim(claimant)).expect("it is there").expect("queries wait")
}

/// A broker with so many queries, and the ids of those that were not cancelled.
struct Filled {
    broker: Broker,
    shape: Shape,
    payload: JsonText,
    ids: RefCell<Vec<QueryId>>,
    made: RefCell<usize>,
}

impl Filled {
    fn new((shape, waiting): (Shape, usize)) -> Self {
        let payload = JsonText::parse("{}").expect("an object");
        let filled = Self { broker: broker(), shape, payload, ids: RefCell::default(), made: RefCell::default() };
        for _ in 0..waiting {
            submit(&filled.broker, filled.next());
        }
        filled
    }

    fn next(&self) -> NewQuery {
        let nth = self.made.replace_with(|made| *made + 1);
        let query = query(self.payload.clone(), self.shape, nth);
        self.ids.borrow_mut().push(query.id.clone());
        query
    }

    /// Any one of those that wait, and another in its place.
    fn swap_any(&self) -> QueryId {
        submit(&self.broker, self.next());
        let mut ids = self.ids.borrow_mut();
        let any = fastrand::usize(..ids.len());
        ids.swap_remove(any)
    }
}

// Each input keeps the number of those that wait what it was.

#[divan::bench(args = cases(), sample_count = 50, sample_size = 100)]
fn push(bencher: Bencher, case: (Shape, usize)) {
    let filled = Filled::new(case);
    let next = || {
        drop(claim(&filled.broker));
        filled.next()
    };
    bencher.with_inputs(next).bench_local_values(|query| submit(&filled.broker, query));
}

#[divan::bench(args = cases(), sample_count = 50, sample_size = 100)]
fn pop(bencher: Bencher, case: (Shape, usize)) {
    let filled = Filled::new(case);
    bencher.with_inputs(|| submit(&filled.broker, filled.next())).bench_local_values(|()| claim(&filled.broker));
}

#[divan::bench(args = cases(), sample_count = 50, sample_size = 100)]
fn cancel(bencher: Bencher, case: (Shape, usize)) {
    let filled = Filled::new(case);
    bencher.with_inputs(|| filled.swap_any()).bench_local_values(|id| now(filled.broker.cancel(&id, "")));
}

type Bare = (std::cmp::Reverse<(u32, u64)>, Arc<str>);

fn bare(nth: u64) -> Bare {
    (std::cmp::Reverse((u32::try_from(nth % 4).expect("small"), nth)), KIND.with(Arc::clone))
}

#[divan::bench(args = WAITING, sample_count = 50, sample_size = 100)]
fn baseline_heap_push(bencher: Bencher, waiting: usize) {
    let heap: RefCell<BinaryHeap<Bare>> = RefCell::new((0..waiting as u64).map(bare).collect());
    let mut nth = waiting as u64;
    let next = || {
        heap.borrow_mut().pop();
        nth += 1;
        bare(nth)
    };
    bencher.with_inputs(next).bench_local_values(|item| heap.borrow_mut().push(item));
}

#[divan::bench(args = WAITING, sample_count = 50, sample_size = 100)]
fn baseline_heap_pop(bencher: Bencher, waiting: usize) {
    let heap: RefCell<BinaryHeap<Bare>> = RefCell::new((0..waiting as u64).map(bare).collect());
    let mut nth = waiting as u64;
    let next = || {
        nth += 1;
        heap.borrow_mut().push(bare(nth));
    };
    bencher.with_inputs(next).bench_local_values(|()| black_box(heap.borrow_mut().pop()));
}

/// A cancel must at least find the query.
#[divan::bench(args = WAITING, sample_count = 50, sample_size = 100)]
fn baseline_table_remove(bencher: Bencher, waiting: usize) {
    let ids: RefCell<Vec<QueryId>> = RefCell::new((0..waiting).map(|_| QueryId::generate()).collect());
    let table: RefCell<HashMap<QueryId, Arc<str>>> =
        RefCell::new(ids.borrow().iter().map(|id| (id.clone(), KIND.with(Arc::clone))).collect());
    let next = || {
        let new = QueryId::generate();
        table.borrow_mut().insert(new.clone(), KIND.with(Arc::clone));
        let mut ids = ids.borrow_mut();
        ids.push(new);
        let any = fastrand::usize(..ids.len());
        ids.swap_remove(any)
    };
    bencher.with_inputs(next).bench_local_values(|id| table.borrow_mut().remove(&id));
}
