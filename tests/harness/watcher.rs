//! A client that watches the events of the pool.

use remuda::api::proto::{self, PoolEvent, WatchEventsRequest, pool_event::Body};
use tokio::time::timeout;
use tonic::Streaming;

use super::{Client, DEADLINE};

pub(crate) struct Watcher {
    stream: Streaming<proto::WatchEventsResponse>,
    /// Everything that was read, in order.
    pub seen: Vec<PoolEvent>,
}

impl Watcher {
    /// Sees everything from now on.
    pub(crate) async fn new(client: &mut Client) -> Self {
        Self::of(client, &[], &[]).await
    }

    /// Sees what is about these kinds and has these names; all of them if none are given.
    pub(crate) async fn of(client: &mut Client, kinds: &[&str], names: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let request = WatchEventsRequest { kinds: owned(kinds), names: owned(names) };
        let stream = client.admin.watch_events(request).await.expect("events can be watched").into_inner();
        Self { stream, seen: Vec::new() }
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<PoolEvent> {
        let told = timeout(DEADLINE, self.stream.message()).await;
        let told = told.unwrap_or_else(|_| panic!("no further event; there were: {:#?}", names(&self.seen)));
        let event = told.expect("the stream does not break")?.event.expect("an answer has an event");
        self.seen.push(event.clone());
        Some(event)
    }

    /// Reads on until an event is as wanted.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&PoolEvent) -> bool) -> PoolEvent {
        loop {
            let event = self.next().await;
            let event = event.unwrap_or_else(|| panic!("it ended; there were: {:#?}", names(&self.seen)));
            if wanted(&event) {
                return event;
            }
        }
    }

    /// Reads on until something of this name happens to this worker.
    pub(crate) async fn worker(&mut self, name: &str, id: u64) -> PoolEvent {
        self.until(|event| event.name == name && worker_of(event) == Some(id)).await
    }

    pub(crate) async fn named(&mut self, name: &str) -> PoolEvent {
        self.until(|event| event.name == name).await
    }

    /// Names of the events of one worker, in order.
    pub(crate) fn life_of(&self, id: u64) -> Vec<&str> {
        let about = self.seen.iter().filter(|event| worker_of(event) == Some(id));
        about.map(|event| event.name.as_str()).collect()
    }

    /// Where among all that was read something first happened to a worker.
    #[track_caller]
    pub(crate) fn place(&self, name: &str, id: u64) -> usize {
        let found = self.seen.iter().position(|event| event.name == name && worker_of(event) == Some(id));
        found.unwrap_or_else(|| panic!("no {name} of worker {id}; there were: {:#?}", names(&self.seen)))
    }
}

/// The worker that an event is about.
pub(crate) fn worker_of(event: &PoolEvent) -> Option<u64> {
    match event.body.as_ref()? {
        Body::WorkerMoved(moved) => Some(moved.worker_id),
        Body::WorkerEnded(ended) => Some(ended.certificate.as_ref()?.worker_id),
        Body::Evicted(evicted) => Some(evicted.worker_id),
        _ => None,
    }
}

/// Why it happened, as far as it is told.
pub(crate) fn reason_of(event: &PoolEvent) -> String {
    match event.body.as_ref() {
        Some(Body::WorkerMoved(moved)) => moved.reason.clone(),
        Some(Body::WorkerEnded(ended)) => ended.certificate.as_ref().map(|end| end.summary.clone()).unwrap_or_default(),
        Some(Body::Scaled(scaled)) => scaled.reason.clone(),
        Some(Body::Evicted(evicted)) => evicted.reason.clone(),
        Some(Body::Circuit(circuit)) => circuit.reason.clone(),
        Some(Body::Pool(pool)) => pool.reason.clone(),
        Some(Body::Reloaded(reloaded)) => reloaded.changes.join("; "),
        Some(Body::Missed(_)) | None => String::new(),
    }
}

fn names(events: &[PoolEvent]) -> Vec<String> {
    events.iter().map(|event| format!("{} {:?}: {}", event.name, worker_of(event), reason_of(event))).collect()
}
