//! What happens in the pool as a stream: chosen by kind and name, ended with the server.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use tokio::{select, sync::broadcast::error::RecvError};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    pool::{EventSubscription, POOL_EVENT_NAMES, PoolEvent, PoolEventBody},
    state::CircuitState,
};

use super::{
    convert::{certificate, narrow, worker_state},
    errors::Violations,
    proto::{self, pool_event::Body},
};

/// No one needs more than this to choose.
const MAX_CHOICES: usize = 100;
/// What it is called that a reader was too slow.
const MISSED: &str = "watch:missed";

/// Which events a reader wants.
#[derive(Debug, Default)]
pub(super) struct Filter {
    kinds: Vec<String>,
    names: Vec<String>,
}

impl Filter {
    /// Reads the request. Whether there are such kinds is for the pool to say.
    pub(super) fn read(request: proto::WatchEventsRequest) -> Result<Self, Status> {
        let proto::WatchEventsRequest { kinds, names } = request;
        let mut found = Violations::default();
        for (field, count) in [("kinds", kinds.len()), ("names", names.len())] {
            if count > MAX_CHOICES {
                found.add(field, format!("has {count} entries; at most {MAX_CHOICES} are allowed"));
            }
        }
        if kinds.iter().any(String::is_empty) {
            found.add("kinds", "has an empty entry; leave it out for all kinds");
        }
        if let Some(unknown) = names.iter().find(|wanted| !POOL_EVENT_NAMES.iter().any(|name| is_called(wanted, name)))
        {
            let known = POOL_EVENT_NAMES.join(", ");
            found.add(
                "names",
                format!(
                    "has {unknown:?}, which no event is called; known are: {known}, or a beginning such as worker:"
                ),
            );
        }
        found.check()?;
        Ok(Self { kinds, names })
    }

    pub(super) fn kinds(&self) -> &[String] {
        &self.kinds
    }

    fn wants(&self, event: &PoolEvent) -> bool {
        let of_kind = |wanted: &String| event.kind.as_deref() == Some(wanted.as_str());
        let name = event.body.name();
        (self.kinds.is_empty() || self.kinds.iter().any(of_kind))
            && (self.names.is_empty() || self.names.iter().any(|wanted| is_called(wanted, name)))
    }
}

/// A name stands for itself, and for all that follow it if it ends with a colon.
fn is_called(wanted: &str, name: &str) -> bool {
    wanted == name || (wanted.ends_with(':') && name.starts_with(wanted))
}

type Received = Result<PoolEvent, RecvError>;
type Waiting = Pin<Box<dyn Future<Output = (EventSubscription, Received)> + Send>>;

/// Ends when the server closes its calls. Nothing is done between two reads: a slow reader holds nothing up.
pub(super) struct PoolEvents {
    filter: Filter,
    closing: CancellationToken,
    waiting: Option<Waiting>,
}

impl PoolEvents {
    pub(super) fn new(events: EventSubscription, filter: Filter, closing: CancellationToken) -> Self {
        let waiting = Some(wait(events, closing.clone()));
        Self { filter, closing, waiting }
    }

    /// What the reader is told of it, if anything.
    fn tell(&self, received: Received) -> Option<proto::PoolEvent> {
        match received {
            Ok(event) => self.filter.wants(&event).then(|| convert(event)),
            Err(RecvError::Lagged(count)) => Some(missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// What happened before the server closes its calls is told first.
fn wait(mut events: EventSubscription, closing: CancellationToken) -> Waiting {
    Box::pin(async move {
        let received = select! {
            biased;
            received = events.next() => received,
            () = closing.cancelled() => Err(RecvError::Closed),
        };
        (events, received)
    })
}

impl Stream for PoolEvents {
    type Item = Result<proto::WatchEventsResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(waiting) = &mut self.waiting else { return Poll::Ready(None) };
            let (events, received) = ready!(waiting.as_mut().poll(context));
            let ended = matches!(received, Err(RecvError::Closed));
            self.waiting = (!ended).then(|| wait(events, self.closing.clone()));
            if let Some(event) = self.tell(received) {
                return Poll::Ready(Some(Ok(proto::WatchEventsResponse { event: Some(event) })));
            }
        }
    }
}

fn missed(count: u64) -> proto::PoolEvent {
    proto::PoolEvent {
        sequence: 0,
        at: Some(SystemTime::now().into()),
        name: MISSED.to_owned(),
        kind: String::new(),
        body: Some(Body::Missed(proto::EventsMissed { count })),
    }
}

fn convert(event: PoolEvent) -> proto::PoolEvent {
    proto::PoolEvent {
        sequence: event.sequence,
        at: Some(event.at.into()),
        name: event.body.name().to_owned(),
        kind: event.kind.map(|kind| kind.to_string()).unwrap_or_default(),
        body: Some(body(event.body)),
    }
}

fn body(body: PoolEventBody) -> Body {
    match body {
        PoolEventBody::Worker { worker, from, to, reason, query, key } => {
            let from = from.map_or(proto::WorkerState::Unspecified, worker_state);
            Body::WorkerMoved(proto::WorkerMoved {
                worker_id: worker.0,
                from: from.into(),
                to: worker_state(to).into(),
                reason: reason.into_owned(),
                query_id: query.map(|query| query.to_string()).unwrap_or_default(),
                key: key.map(|key| key.to_string()).unwrap_or_default(),
            })
        }
        PoolEventBody::WorkerEnded { certificate: end } => {
            Body::WorkerEnded(proto::WorkerEnded { certificate: Some(certificate(&end)) })
        }
        PoolEventBody::Scaled { from, to, reason } => {
            Body::Scaled(proto::KindScaled { from: narrow(from), to: narrow(to), reason })
        }
        PoolEventBody::Evicted { worker, strategy, reason } => {
            Body::Evicted(proto::WorkerEvicted { worker_id: worker.0, strategy: strategy.to_owned(), reason })
        }
        PoolEventBody::Circuit { state, reason } => {
            Body::Circuit(proto::CircuitChanged { state: circuit(state).into(), reason })
        }
        PoolEventBody::Pool { change, reason } => {
            Body::Pool(proto::PoolChanged { state: change.name().to_owned(), reason })
        }
        PoolEventBody::Reloaded { summary } => Body::Reloaded(proto::ConfigReloaded { changes: summary }),
    }
}

fn circuit(state: CircuitState) -> proto::CircuitState {
    match state {
        CircuitState::Open => proto::CircuitState::Open,
        CircuitState::HalfOpen => proto::CircuitState::HalfOpen,
        CircuitState::Closed => proto::CircuitState::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_stream::StreamExt;

    use super::*;
    use crate::{
        model::WorkerId,
        pool::{EventBus, PoolChange},
        state::WorkerState,
    };

    fn filter(kinds: &[&str], names: &[&str]) -> Result<Filter, Status> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Filter::read(proto::WatchEventsRequest { kinds: owned(kinds), names: owned(names) })
    }

    /// A crash of `k`, a scaling of `other`, and a drain.
    fn emit(events: &EventBus) {
        let (k, other): (Arc<str>, Arc<str>) = ("k".into(), "other".into());
        events.emit(Some(&k), || PoolEventBody::Worker {
            worker: WorkerId(7),
            from: Some(WorkerState::Processing),
            to: WorkerState::Failed,
            reason: "crash".into(),
            query: None,
            key: Some("repo".into()),
        });
        events.emit(Some(&other), || PoolEventBody::Scaled { from: 1, to: 2, reason: "asked for".to_owned() });
        events.emit(None, || PoolEventBody::Pool { change: PoolChange::Draining, reason: "repair".to_owned() });
    }

    /// The names of all that a reader with this filter gets before the server closes.
    async fn names(filter: Filter) -> Vec<String> {
        let (events, closing) = (EventBus::default(), CancellationToken::new());
        let mut stream = PoolEvents::new(events.subscribe(), filter, closing.clone());
        emit(&events);
        closing.cancel();
        let mut names = Vec::new();
        while let Some(told) = stream.next().await {
            names.push(told.unwrap().event.unwrap().name);
        }
        assert!(stream.next().await.is_none(), "it has ended for good");
        names
    }

    #[tokio::test]
    async fn reader_gets_what_it_asked_for_and_then_a_clean_end() {
        assert_eq!(names(Filter::default()).await, ["worker:crashed", "pool:scaled", "pool:draining"]);
        assert_eq!(names(filter(&["k"], &[]).unwrap()).await, ["worker:crashed"]);
        assert_eq!(names(filter(&["k", "other"], &["pool:"]).unwrap()).await, ["pool:scaled"]);
        assert_eq!(
            names(filter(&[], &["worker:", "pool:draining"]).unwrap()).await,
            ["worker:crashed", "pool:draining"]
        );
        assert!(names(filter(&["k"], &["worker:dead"]).unwrap()).await.is_empty());
    }

    #[tokio::test]
    async fn slow_reader_is_told_what_it_missed_whatever_it_asked_for() {
        let events = EventBus::default();
        let mut stream = PoolEvents::new(events.subscribe(), filter(&["k"], &[]).unwrap(), CancellationToken::new());
        for _ in 0..4_100 {
            events.emit(None, || PoolEventBody::Reloaded { summary: Vec::new() });
        }
        let told = stream.next().await.unwrap().unwrap().event.unwrap();
        assert_eq!((told.name.as_str(), told.sequence), ("watch:missed", 0));
        assert_eq!(told.body, Some(Body::Missed(proto::EventsMissed { count: 4 })));
    }

    #[tokio::test]
    async fn event_is_told_whole() {
        let events = EventBus::default();
        let mut stream = PoolEvents::new(events.subscribe(), Filter::default(), CancellationToken::new());
        emit(&events);
        let told = stream.next().await.unwrap().unwrap().event.unwrap();
        assert_eq!((told.sequence, told.kind.as_str()), (1, "k"));
        assert!(told.at.is_some());
        let Some(Body::WorkerMoved(moved)) = told.body else { panic!("{told:?}") };
        assert_eq!((moved.from(), moved.to()), (proto::WorkerState::Processing, proto::WorkerState::Failed));
        assert_eq!((moved.worker_id, moved.reason.as_str(), moved.key.as_str()), (7, "crash", "repo"));
    }

    #[test]
    fn reader_who_is_gone_is_watched_for_no_more() {
        let events = EventBus::default();
        drop(PoolEvents::new(events.subscribe(), Filter::default(), CancellationToken::new()));
        events.emit(None, || panic!("nobody watches"));
    }

    #[test]
    fn wrong_names_are_told_what_is_right() {
        let error = filter(&[], &["worker:ready", "worker:ill"]).unwrap_err();
        let text = error.message();
        assert!(
            text.starts_with("names: has \"worker:ill\", which no event is called; known are: worker:starting, "),
            "{text}"
        );
        for wrong in ["worker", ":", "pool:x", ""] {
            assert!(filter(&[], &[wrong]).is_err(), "{wrong:?}");
        }
        let text = filter(&[""], &[]).unwrap_err().message().to_owned();
        assert_eq!(text, "kinds: has an empty entry; leave it out for all kinds");
        let text = filter(&["k"; 101], &["pool:"; 101]).unwrap_err().message().to_owned();
        assert_eq!(
            text,
            "kinds: has 101 entries; at most 100 are allowed; names: has 101 entries; at most 100 are allowed"
        );
    }
}
