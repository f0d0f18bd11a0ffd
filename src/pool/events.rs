//! The events of the pool and the bus that publishes them to subscribers.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use crate::{
    model::{DeathCertificate, QueryId, WorkerId},
    state::{CircuitState, WorkerState},
    worker::{WorkerObserver, WorkerStateChange},
};

/// Events buffered for a slow subscriber; beyond that the oldest are dropped.
const CHANNEL_CAPACITY: usize = 4_096;

/// Every name that a pool event can have.
pub const POOL_EVENT_NAMES: [&str; 18] = [
    "worker:starting",
    "worker:loading",
    "worker:ready",
    "worker:busy",
    "worker:idle",
    "worker:stopping",
    "worker:crashed",
    "worker:dead",
    "worker:ended",
    "worker:evicted",
    "kind:circuit",
    "pool:scaled",
    "pool:reloaded",
    "pool:ready",
    "pool:draining",
    "pool:drained",
    "pool:resumed",
    "pool:shut_down",
];

/// Publishes events to subscribers. It keeps none: a subscriber sees the events from its subscription on.
#[derive(Debug, Default)]
pub struct EventBus {
    /// Each subscription holds a clone, so that `emit` finds out without a lock that there is none.
    subscribers: Arc<()>,
    channel: Mutex<Channel>,
}

#[derive(Debug, Default)]
struct Channel {
    /// Created for the first subscriber: its slots take half a megabyte.
    sender: Option<Sender<PoolEvent>>,
    last_sequence: u64,
}

#[derive(Debug)]
pub struct EventSubscription {
    receiver: Receiver<PoolEvent>,
    _subscriber: Arc<()>,
}

#[derive(Debug, Clone)]
pub struct PoolEvent {
    /// From 1, counting only events that had a subscriber.
    pub sequence: u64,
    pub at: SystemTime,
    /// The kind that the event concerns, if it concerns one.
    pub kind: Option<Arc<str>>,
    pub body: PoolEventBody,
}

#[derive(Debug, Clone)]
pub enum PoolEventBody {
    /// A worker changed its state; `from` is `None` for a new one.
    Worker {
        worker: WorkerId,
        from: Option<WorkerState>,
        to: WorkerState,
        reason: Cow<'static, str>,
        query: Option<QueryId>,
        key: Option<Arc<str>>,
    },
    WorkerEnded {
        certificate: Arc<DeathCertificate>,
    },
    /// The number of workers of a kind is being changed.
    Scaled {
        from: usize,
        to: usize,
        reason: String,
    },
    /// A worker is stopped to make room.
    Evicted {
        worker: WorkerId,
        strategy: &'static str,
        reason: String,
    },
    Circuit {
        state: CircuitState,
        reason: String,
    },
    Pool {
        change: PoolChange,
        reason: String,
    },
    /// A changed configuration is in force; one line for each change.
    Reloaded {
        summary: Vec<String>,
    },
}

/// A change of the pool as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolChange {
    Ready,
    Draining,
    Drained,
    Resumed,
    ShutDown,
}

impl EventBus {
    /// Publishes an event. `body` is called only if there is a subscriber.
    pub fn emit(&self, kind: Option<&Arc<str>>, body: impl FnOnce() -> PoolEventBody) {
        if Arc::strong_count(&self.subscribers) == 1 {
            return;
        }
        let body = body();
        // Numbered and sent under one lock, so that the numbers arrive in order.
        let mut channel = self.channel.lock();
        let sequence = channel.last_sequence + 1;
        let event = PoolEvent { sequence, at: SystemTime::now(), kind: kind.cloned(), body };
        if channel.sender.as_ref().is_some_and(|sender| sender.send(event).is_ok()) {
            channel.last_sequence = sequence;
        }
    }

    #[must_use]
    pub fn subscribe(&self) -> EventSubscription {
        let mut channel = self.channel.lock();
        let sender = channel.sender.get_or_insert_with(|| broadcast::channel(CHANNEL_CAPACITY).0);
        EventSubscription { receiver: sender.subscribe(), _subscriber: self.subscribers.clone() }
    }
}

impl WorkerObserver for EventBus {
    fn on_state_change(&self, change: WorkerStateChange<'_>) {
        let WorkerStateChange { worker, kind, key, from, to, reason, query } = change;
        self.emit(Some(kind), || PoolEventBody::Worker {
            worker,
            from,
            to,
            reason: reason.into(),
            query: query.cloned(),
            key: key.cloned(),
        });
    }
}

impl EventSubscription {
    /// Waits for the next event; `Lagged` tells how many were dropped. Cancel safe.
    pub async fn next(&mut self) -> Result<PoolEvent, RecvError> {
        self.receiver.recv().await
    }
}

impl PoolEventBody {
    /// Name of the event, one of `POOL_EVENT_NAMES`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Worker { from, to, .. } => worker_event_name(*from, *to),
            Self::WorkerEnded { .. } => "worker:ended",
            Self::Scaled { .. } => "pool:scaled",
            Self::Evicted { .. } => "worker:evicted",
            Self::Circuit { .. } => "kind:circuit",
            Self::Pool { change, .. } => change.event_name(),
            Self::Reloaded { .. } => "pool:reloaded",
        }
    }
}

impl PoolChange {
    fn event_name(self) -> &'static str {
        match self {
            Self::Ready => "pool:ready",
            Self::Draining => "pool:draining",
            Self::Drained => "pool:drained",
            Self::Resumed => "pool:resumed",
            Self::ShutDown => "pool:shut_down",
        }
    }

    /// The event's name without `pool:`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.event_name().trim_start_matches("pool:")
    }
}

fn worker_event_name(from: Option<WorkerState>, to: WorkerState) -> &'static str {
    match (from, to) {
        (_, WorkerState::Spawning) => "worker:starting",
        (_, WorkerState::Loading) => "worker:loading",
        (Some(WorkerState::Processing), WorkerState::Ready) | (_, WorkerState::Idle) => "worker:idle",
        (_, WorkerState::Ready) => "worker:ready",
        (_, WorkerState::Processing) => "worker:busy",
        (_, WorkerState::Evicting) => "worker:stopping",
        (_, WorkerState::Failed) => "worker:crashed",
        (_, WorkerState::Dead) => "worker:dead",
    }
}

#[cfg(test)]
mod tests {
    use super::{WorkerState::*, *};

    fn scaled(to: usize) -> PoolEventBody {
        PoolEventBody::Scaled { from: 0, to, reason: String::new() }
    }

    /// The sequence number of the next event and the size it tells of.
    async fn next(subscription: &mut EventSubscription) -> (u64, usize) {
        match subscription.next().await {
            Ok(PoolEvent { sequence, body: PoolEventBody::Scaled { to, .. }, .. }) => (sequence, to),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn every_subscriber_sees_all_events_in_order_from_its_subscription_on() {
        let events = EventBus::default();
        let kind: Arc<str> = "embed".into();
        let mut early = events.subscribe();
        events.emit(Some(&kind), || scaled(1));
        let mut late = events.subscribe();
        events.emit(None, || scaled(2));
        events.emit(None, || scaled(3));
        let first = early.next().await.unwrap();
        assert_eq!((first.sequence, first.kind.as_deref(), first.body.name()), (1, Some("embed"), "pool:scaled"));
        for subscription in [&mut early, &mut late] {
            assert_eq!((next(subscription).await, next(subscription).await), ((2, 2), (3, 3)));
        }
        drop(events);
        assert_eq!(early.next().await.unwrap_err(), RecvError::Closed);
    }

    #[tokio::test]
    async fn slow_subscriber_learns_how_many_events_it_missed() {
        let events = EventBus::default();
        let mut slow = events.subscribe();
        for to in 1..=CHANNEL_CAPACITY + 7 {
            events.emit(None, || scaled(to));
        }
        assert_eq!(slow.next().await.unwrap_err(), RecvError::Lagged(7));
        assert_eq!(next(&mut slow).await, (8, 8));
    }

    #[tokio::test]
    async fn nothing_is_built_or_counted_without_a_subscriber() {
        let events = EventBus::default();
        events.emit(None, || panic!("built before the first subscription"));
        drop(events.subscribe());
        events.emit(None, || panic!("built after the last subscription ended"));
        let mut subscription = events.subscribe();
        events.emit(None, || scaled(1));
        assert_eq!(next(&mut subscription).await, (1, 1));
    }

    #[test]
    fn every_worker_transition_has_a_listed_name() {
        let transitions = [
            (None, Spawning, "worker:starting"),
            (Some(Spawning), Loading, "worker:loading"),
            (Some(Loading), Ready, "worker:ready"),
            (Some(Ready), Processing, "worker:busy"),
            (Some(Processing), Ready, "worker:idle"),
            (Some(Ready), Idle, "worker:idle"),
            (Some(Idle), Ready, "worker:ready"),
            (Some(Processing), Evicting, "worker:stopping"),
            (Some(Processing), Failed, "worker:crashed"),
            (Some(Evicting), Dead, "worker:dead"),
        ];
        for (from, to, name) in transitions {
            assert_eq!(worker_event_name(from, to), name);
            assert!(POOL_EVENT_NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn every_change_of_the_pool_has_a_listed_name() {
        use PoolChange::*;
        let names = [Ready, Draining, Drained, Resumed, ShutDown].map(PoolChange::name);
        assert_eq!(names, ["ready", "draining", "drained", "resumed", "shut_down"]);
        for name in names {
            assert!(POOL_EVENT_NAMES.contains(&&*format!("pool:{name}")), "{name}");
        }
    }
}
