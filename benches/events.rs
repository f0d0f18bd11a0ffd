//! Cost of appending a batch of messages to a query's log and reading it, by the number of readers.
//!
//! The log is the broker's, as a worker's driver and the streams of the API see it. The baselines are a bare deque behind a lock
//! with a notification, and tokio's broadcast channel, which both give every reader its own copy of a shared text too, but keep no count of
//! who has read how far. A row is one batch, and the items are its messages: those that were added, or that all readers got.

use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use divan::{Bencher, black_box, counter::ItemsCount};
use remuda::{
    broker::{Broker, ClaimScope, Claimant, Lease, MemoryLimits, MessageBatchBuilder, NewQuery},
    config::Overflow,
    metrics::Metrics,
    model::{QueryId, QuerySpec, WorkerId},
    protocol::JsonText,
};
use tokio::sync::{Notify, broadcast};
use tokio_stream::StreamExt;

const READERS: [usize; 3] = [1, 10, 100];

/// Messages that one read of a worker's socket brings, at 200 bytes each.
const BATCH_MESSAGES: usize = 256;
const MESSAGE_BYTES: usize = 200;

/// Old messages make room for new ones, in the log and in the baselines.
const KEPT_MESSAGES: usize = 4 * BATCH_MESSAGES;

fn main() {
    divan::main();
}

/// A reader that takes whatever is there each time it is polled, and then waits for more.
type Reader = Pin<Box<dyn Future<Output = ()>>>;

trait Log {
    fn new() -> Self;
    fn reader(&self) -> Reader;
    fn append(&mut self, batch: Vec<JsonText>);
}

/// Lets a future go as far as it can now.
fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory broker does not wait here"),
    }
}

fn batch() -> Vec<JsonText> {
    let text = format!("\"{}\"", "x".repeat(MESSAGE_BYTES - 2));
    (0..BATCH_MESSAGES).map(|_| JsonText::from_checked(&text)).collect()
}

/// The log of one running query.
struct Remuda {
    broker: Broker,
    id: QueryId,
    lease: Lease,
}

impl Log for Remuda {
    fn new() -> Self {
        let limits = MemoryLimits {
            max_queries: 1,
            max_waiting_bytes: usize::MAX,
            max_events: KEPT_MESSAGES,
            max_bytes: usize::MAX,
            overflow: Overflow::Gap,
            max_stall: Duration::ZERO,
            retention: Duration::from_mins(1),
            max_ended: 1,
            max_ended_bytes: usize::MAX,
            max_dead: 1,
            max_dead_bytes: usize::MAX,
            max_dead_age: Duration::from_mins(1),
            aging: None,
            max_queries_per_owner: None,
            max_running_per_owner: None,
        };
        let broker = Broker::memory(limits, Metrics::new().query.clone());
        let id = QueryId::generate();
        now(broker.submit(query(id.clone()))).expect("there is room");
        let claimant =
            Claimant { kind: "k", worker: WorkerId(1), scope: ClaimScope::Open, takes_lane: false, notify: None };
        let claim = now(broker.claim(claimant)).expect("it is there").expect("a query waits");
        Self { broker, id, lease: claim.lease }
    }

    fn reader(&self) -> Reader {
        let mut reader = now(self.broker.read(&self.id, 0)).expect("it is there");
        Box::pin(async move {
            while let Some(batch) = reader.next().await {
                black_box(batch.expect("the memory broker is always there"));
            }
        })
    }

    fn append(&mut self, batch: Vec<JsonText>) {
        // As a worker's driver does, the copy included.
        let mut builder = MessageBatchBuilder::default();
        for text in &batch {
            builder.push_checked(text.as_str(), BATCH_MESSAGES * MESSAGE_BYTES);
        }
        let mut outputs = vec![builder.take().expect("there are several")];
        now(self.lease.append(&mut outputs)).expect("the lease holds");
        assert!(outputs.is_empty());
    }
}

fn query(id: QueryId) -> NewQuery {
    let spec = QuerySpec {
        kind: "k".into(),
        query_type: None,
        payload: JsonText::from_checked("{}"),
        priority: 0,
        key: None,
        owner: None,
        queue_timeout: None,
        options: None,
        reject_if_busy: false,
    };
    NewQuery { id, spec, deadline: None, abandon_after: None, lane: None, trace: None }
}

/// Baseline: the least that a log costs which its readers may read again.
#[derive(Default)]
struct Deque {
    messages: VecDeque<JsonText>,
    /// Number of messages before the first one that is kept.
    dropped: usize,
}

impl Deque {
    fn push(&mut self, message: JsonText) {
        self.messages.push_back(message);
        if self.messages.len() > KEPT_MESSAGES {
            self.messages.pop_front();
            self.dropped += 1;
        }
    }
}

struct LockedDeque(Arc<(Mutex<Deque>, Notify)>);

impl Log for LockedDeque {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn reader(&self) -> Reader {
        let shared = self.0.clone();
        Box::pin(async move {
            let mut next = 0;
            loop {
                let mut changed = pin!(shared.1.notified());
                changed.as_mut().enable();
                let read: Vec<JsonText> = {
                    let deque = shared.0.lock().expect("nobody panics");
                    let read = deque.messages.range(next - deque.dropped..).cloned().collect();
                    next = deque.dropped + deque.messages.len();
                    read
                };
                if read.is_empty() {
                    changed.await;
                }
                for message in read {
                    black_box(message);
                }
            }
        })
    }

    fn append(&mut self, batch: Vec<JsonText>) {
        let mut deque = self.0.0.lock().expect("nobody panics");
        for message in batch {
            deque.push(message);
        }
        drop(deque);
        self.0.1.notify_waiters();
    }
}

/// Baseline: what a program would take that wants every reader to see everything.
struct Broadcast(broadcast::Sender<JsonText>);

impl Log for Broadcast {
    fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_MESSAGES))
    }

    fn reader(&self) -> Reader {
        let mut receiver = self.0.subscribe();
        Box::pin(async move {
            while let Ok(message) = receiver.recv().await {
                black_box(message);
            }
        })
    }

    fn append(&mut self, batch: Vec<JsonText>) {
        for message in batch {
            self.0.send(message).expect("someone reads");
        }
    }
}

fn attached<L: Log>(readers: usize) -> (L, Vec<Reader>) {
    let log = L::new();
    let mut readers: Vec<Reader> = (0..readers).map(|_| log.reader()).collect();
    read_all(&mut readers);
    (log, readers)
}

fn read_all(readers: &mut [Reader]) {
    for reader in readers {
        assert!(poll(reader.as_mut()).is_pending(), "the log does not end");
    }
}

/// One batch, while so many readers wait for it: they are woken, and read it outside of what is measured.
#[divan::bench(types = [Remuda, LockedDeque, Broadcast], args = READERS, sample_count = 500, sample_size = 1)]
fn append<L: Log>(bencher: Bencher, readers: usize) {
    let (log, readers) = attached::<L>(readers);
    let (log, readers) = (std::cell::RefCell::new(log), std::cell::RefCell::new(readers));
    let next = || {
        read_all(&mut readers.borrow_mut());
        batch()
    };
    let bencher = bencher.counter(ItemsCount::new(BATCH_MESSAGES)).with_inputs(next);
    bencher.bench_local_values(|batch| log.borrow_mut().append(batch));
}

/// One batch, read by each of so many readers, which then wait for the next.
#[divan::bench(types = [Remuda, LockedDeque, Broadcast], args = READERS, sample_count = 500, sample_size = 1)]
fn read<L: Log>(bencher: Bencher, readers: usize) {
    let counter = ItemsCount::new(BATCH_MESSAGES * readers);
    let (mut log, mut readers) = attached::<L>(readers);
    let bencher = bencher.counter(counter).with_inputs(|| log.append(batch()));
    bencher.bench_local_values(|()| read_all(&mut readers));
}
