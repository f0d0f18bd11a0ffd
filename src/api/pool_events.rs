//! The events of the pool as the stream that `WatchEvents` returns, filtered by kind and name.

use std::{pin::Pin, time::SystemTime};

use futures_util::stream;
use tokio::{select, sync::broadcast::error::RecvError};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::pool::{EventSubscription, POOL_EVENT_NAMES, PoolEvent, PoolEventBody};

use super::{
    convert::{certificate, saturated},
    errors::Violations,
    proto::{self, pool_event::Body},
};

const FILTER_MAX_ENTRIES: usize = 100;
/// Name of the event that tells a slow reader what it missed.
const MISSED_EVENT_NAME: &str = "watch:missed";

pub(super) type PoolEventResponses = Pin<Box<dyn Stream<Item = Result<proto::WatchEventsResponse, Status>> + Send>>;

/// Events that a reader requested. An empty list selects all.
#[derive(Debug, Default)]
pub(super) struct PoolEventFilter {
    kinds: Vec<String>,
    names: Vec<String>,
}

impl PoolEventFilter {
    /// Reads the request. The caller checks that the kinds exist.
    pub(super) fn read(request: proto::WatchEventsRequest) -> Result<Self, Status> {
        let proto::WatchEventsRequest { kinds, names } = request;
        let mut found = Violations::default();
        for (field, count) in [("kinds", kinds.len()), ("names", names.len())] {
            if count > FILTER_MAX_ENTRIES {
                found.add(field, format!("has {count} entries; at most {FILTER_MAX_ENTRIES} are allowed"));
            }
        }
        if kinds.iter().any(String::is_empty) {
            found.add("kinds", "has an empty entry; omit it for all kinds");
        }
        if let Some(unknown) =
            names.iter().find(|wanted| !POOL_EVENT_NAMES.iter().any(|name| matches_name(wanted, name)))
        {
            let known = POOL_EVENT_NAMES.join(", ");
            let problem =
                format!("has {unknown:?}, which is no event; known are: {known}, or a prefix such as worker:");
            found.add("names", problem);
        }
        found.check()?;
        Ok(Self { kinds, names })
    }

    pub(super) fn kinds(&self) -> &[String] {
        &self.kinds
    }

    fn matches(&self, event: &PoolEvent) -> bool {
        let of_kind = |wanted: &String| event.kind.as_deref() == Some(wanted.as_str());
        let name = event.body.name();
        (self.kinds.is_empty() || self.kinds.iter().any(of_kind))
            && (self.names.is_empty() || self.names.iter().any(|wanted| matches_name(wanted, name)))
    }
}

/// A wanted name that ends with a colon is a prefix.
fn matches_name(wanted: &str, name: &str) -> bool {
    wanted == name || (wanted.ends_with(':') && name.starts_with(wanted))
}

/// The events that the filter selects. Ends when the server closes its calls, after the events before that.
pub(super) fn pool_event_stream(
    events: EventSubscription,
    filter: PoolEventFilter,
    closing: CancellationToken,
) -> PoolEventResponses {
    let responses = stream::unfold((events, filter, closing), async |(mut events, filter, closing)| {
        let event = loop {
            let received = select! {
                biased;
                received = events.next() => received,
                () = closing.cancelled() => Err(RecvError::Closed),
            };
            match received {
                Ok(event) if filter.matches(&event) => break convert(event),
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => break missed(count),
                Err(RecvError::Closed) => return None,
            }
        };
        let response = proto::WatchEventsResponse { event: Some(event) };
        Some((Ok(response), (events, filter, closing)))
    });
    Box::pin(responses.fuse())
}

fn missed(count: u64) -> proto::PoolEvent {
    proto::PoolEvent {
        sequence: 0,
        at: Some(SystemTime::now().into()),
        name: MISSED_EVENT_NAME.to_owned(),
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
            let from = from.map_or(proto::WorkerState::Unspecified, Into::into);
            Body::WorkerMoved(proto::WorkerMoved {
                worker_id: worker.0,
                from: from.into(),
                to: proto::WorkerState::from(to).into(),
                reason: reason.into_owned(),
                query_id: query.map(|query| query.to_string()).unwrap_or_default(),
                key: key.map(|key| key.to_string()).unwrap_or_default(),
            })
        }
        PoolEventBody::WorkerEnded { certificate: end } => {
            Body::WorkerEnded(proto::WorkerEnded { certificate: Some(certificate(&end)) })
        }
        PoolEventBody::Scaled { from, to, reason } => {
            Body::Scaled(proto::KindScaled { from: saturated(from), to: saturated(to), reason })
        }
        PoolEventBody::Evicted { worker, strategy, reason } => {
            Body::Evicted(proto::WorkerEvicted { worker_id: worker.0, strategy: strategy.to_owned(), reason })
        }
        PoolEventBody::Circuit { state, reason } => {
            Body::Circuit(proto::CircuitChanged { state: proto::CircuitState::from(state).into(), reason })
        }
        PoolEventBody::Pool { change, reason } => {
            Body::Pool(proto::PoolChanged { state: change.name().to_owned(), reason })
        }
        PoolEventBody::Reloaded { summary } => Body::Reloaded(proto::ConfigReloaded { changes: summary }),
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

    fn filter(kinds: &[&str], names: &[&str]) -> Result<PoolEventFilter, Status> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        PoolEventFilter::read(proto::WatchEventsRequest { kinds: owned(kinds), names: owned(names) })
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
    async fn names(filter: PoolEventFilter) -> Vec<String> {
        let (events, closing) = (EventBus::default(), CancellationToken::new());
        let mut stream = pool_event_stream(events.subscribe(), filter, closing.clone());
        emit(&events);
        closing.cancel();
        let mut names = Vec::new();
        while let Some(response) = stream.next().await {
            names.push(response.unwrap().event.unwrap().name);
        }
        assert!(stream.next().await.is_none(), "it has ended for good");
        names
    }

    #[tokio::test]
    async fn reader_gets_what_it_asked_for_and_then_a_clean_end() {
        assert_eq!(names(PoolEventFilter::default()).await, ["worker:crashed", "pool:scaled", "pool:draining"]);
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
        let mut stream = pool_event_stream(events.subscribe(), filter(&["k"], &[]).unwrap(), CancellationToken::new());
        for _ in 0..4_100 {
            events.emit(None, || PoolEventBody::Reloaded { summary: Vec::new() });
        }
        let event = stream.next().await.unwrap().unwrap().event.unwrap();
        assert_eq!((event.name.as_str(), event.sequence), ("watch:missed", 0));
        assert_eq!(event.body, Some(Body::Missed(proto::EventsMissed { count: 4 })));
    }

    #[tokio::test]
    async fn event_is_told_whole() {
        let events = EventBus::default();
        let mut stream = pool_event_stream(events.subscribe(), PoolEventFilter::default(), CancellationToken::new());
        emit(&events);
        let event = stream.next().await.unwrap().unwrap().event.unwrap();
        assert_eq!((event.sequence, event.kind.as_str()), (1, "k"));
        assert!(event.at.is_some());
        let Some(Body::WorkerMoved(moved)) = event.body else { panic!("{event:?}") };
        assert_eq!((moved.from(), moved.to()), (proto::WorkerState::Processing, proto::WorkerState::Failed));
        assert_eq!((moved.worker_id, moved.reason.as_str(), moved.key.as_str()), (7, "crash", "repo"));
    }

    #[test]
    fn reader_who_is_gone_is_watched_for_no_more() {
        let events = EventBus::default();
        drop(pool_event_stream(events.subscribe(), PoolEventFilter::default(), CancellationToken::new()));
        events.emit(None, || panic!("nobody watches"));
    }

    #[test]
    fn wrong_names_are_told_what_is_right() {
        let error = filter(&[], &["worker:ready", "worker:ill"]).unwrap_err();
        let text = error.message();
        assert!(
            text.starts_with("names: has \"worker:ill\", which is no event; known are: worker:starting, "),
            "{text}"
        );
        for wrong in ["worker", ":", "pool:x", ""] {
            assert!(filter(&[], &[wrong]).is_err(), "{wrong:?}");
        }
        let text = filter(&[""], &[]).unwrap_err().message().to_owned();
        assert_eq!(text, "kinds: has an empty entry; omit it for all kinds");
        let text = filter(&["k"; 101], &["pool:"; 101]).unwrap_err().message().to_owned();
        assert_eq!(
            text,
            "kinds: has 101 entries; at most 100 are allowed; names: has 101 entries; at most 100 are allowed"
        );
    }
}
