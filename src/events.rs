//! What happens in the pool, as it happens, for whoever watches.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use crate::{
    model::{DeathCertificate, QueryId, WorkerId},
    state::WorkerState,
};

/// How many events a watcher may be behind before it misses some.
const CAPACITY: usize = 4_096;

/// Everything an event can be called.
pub const NAMES: [&str; 18] = [
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

/// Where events are told. It keeps none: who watches sees what happens from then on.
#[derive(Debug)]
pub struct Events {
    /// Each watcher holds a clone, so that looking whether there is one takes no lock.
    watchers: Arc<()>,
    bus: Mutex<Bus>,
}

#[derive(Debug)]
struct Bus {
    /// Made for the first watcher: its slots take half a megabyte.
    sender: Option<Sender<PoolEvent>>,
    next: u64,
}

/// One watcher's place.
#[derive(Debug)]
pub struct Watch {
    receiver: Receiver<PoolEvent>,
    _watcher: Arc<()>,
}

/// What a watcher sees next.
#[derive(Debug)]
pub enum Seen {
    Event(PoolEvent),
    /// It was too slow, and this many events are gone.
    Missed(u64),
    /// Nothing will happen any more.
    Closed,
}

#[derive(Debug, Clone)]
pub struct PoolEvent {
    /// From 1, one more for each event that anybody watched.
    pub sequence: u64,
    pub at: SystemTime,
    /// The kind it is about, if it is about one.
    pub kind: Option<Arc<str>>,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// A worker went from one state to another; `from` is `None` for one that begins.
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
    /// It was decided how many workers a kind shall have.
    Scaled {
        from: usize,
        to: usize,
        reason: String,
    },
    /// A worker was chosen to make room.
    Evicted {
        worker: WorkerId,
        strategy: &'static str,
        reason: String,
    },
    Circuit {
        state: CircuitState,
        reason: String,
    },
    /// The pool as a whole is now `ready`, `draining`, `drained`, `resumed` or `shut_down`.
    Pool {
        state: &'static str,
        reason: String,
    },
    /// A changed configuration is in force; one line for each change.
    Reloaded {
        summary: Vec<String>,
    },
}

/// Whether a kind's queries are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Its workers do not start: its queries fail at once.
    Open,
    /// One worker came up and has yet to prove its use.
    HalfOpen,
    Closed,
}

impl Default for Events {
    fn default() -> Self {
        Self { watchers: Arc::default(), bus: Mutex::new(Bus { sender: None, next: 1 }) }
    }
}

impl Events {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells every watcher. If there is none, `what` is not even called.
    pub fn emit(&self, kind: Option<&Arc<str>>, what: impl FnOnce() -> What) {
        if Arc::strong_count(&self.watchers) == 1 {
            return;
        }
        let what = what();
        // Numbered and sent under one lock, so that the numbers come in order.
        let mut bus = self.bus.lock();
        let event = PoolEvent { sequence: bus.next, at: SystemTime::now(), kind: kind.cloned(), what };
        if bus.sender.as_ref().is_some_and(|sender| sender.send(event).is_ok()) {
            bus.next += 1;
        }
    }

    /// Watches from now on.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let mut bus = self.bus.lock();
        let sender = bus.sender.get_or_insert_with(|| broadcast::channel(CAPACITY).0);
        Watch { receiver: sender.subscribe(), _watcher: self.watchers.clone() }
    }
}

impl Watch {
    /// Waits for what happens next. May be dropped and called again without missing an event.
    pub async fn next(&mut self) -> Seen {
        match self.receiver.recv().await {
            Ok(event) => Seen::Event(event),
            Err(RecvError::Lagged(missed)) => Seen::Missed(missed),
            Err(RecvError::Closed) => Seen::Closed,
        }
    }
}

impl What {
    /// What the event is called wherever it is told.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Worker { from, to, .. } => worker_event(*from, *to),
            Self::WorkerEnded { .. } => "worker:ended",
            Self::Scaled { .. } => "pool:scaled",
            Self::Evicted { .. } => "worker:evicted",
            Self::Circuit { .. } => "kind:circuit",
            Self::Pool { state, .. } => pool_event(state),
            Self::Reloaded { .. } => "pool:reloaded",
        }
    }
}

fn worker_event(from: Option<WorkerState>, to: WorkerState) -> &'static str {
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

fn pool_event(state: &str) -> &'static str {
    let named = NAMES.into_iter().find(|name| name.strip_prefix("pool:") == Some(state));
    // A name that is missing here must not cost the pool its life.
    debug_assert!(named.is_some(), "pool:{state} has no name");
    named.unwrap_or("pool:changed")
}

impl CircuitState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Closed => "closed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WorkerState::*, *};

    fn scaled(to: usize) -> What {
        What::Scaled { from: 0, to, reason: String::new() }
    }

    /// The sequence number and what was scaled to.
    async fn next(watch: &mut Watch) -> (u64, usize) {
        match watch.next().await {
            Seen::Event(PoolEvent { sequence, what: What::Scaled { to, .. }, .. }) => (sequence, to),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn every_watcher_sees_everything_in_order_from_when_it_came() {
        let events = Events::new();
        let kind: Arc<str> = "embed".into();
        let mut early = events.watch();
        events.emit(Some(&kind), || scaled(1));
        let mut late = events.watch();
        events.emit(None, || scaled(2));
        events.emit(None, || scaled(3));
        let Seen::Event(first) = early.next().await else { panic!("not an event") };
        assert_eq!((first.sequence, first.kind.as_deref(), first.what.name()), (1, Some("embed"), "pool:scaled"));
        for watch in [&mut early, &mut late] {
            assert_eq!((next(watch).await, next(watch).await), ((2, 2), (3, 3)));
        }
        drop(events);
        assert!(matches!(early.next().await, Seen::Closed));
    }

    #[tokio::test]
    async fn slow_watcher_is_told_how_many_it_missed() {
        let events = Events::new();
        let mut slow = events.watch();
        for to in 1..=CAPACITY + 7 {
            events.emit(None, || scaled(to));
        }
        assert!(matches!(slow.next().await, Seen::Missed(7)));
        assert_eq!(next(&mut slow).await, (8, 8));
    }

    #[tokio::test]
    async fn nothing_is_built_or_counted_while_nobody_watches() {
        let events = Events::new();
        events.emit(None, || panic!("built before anybody watched"));
        drop(events.watch());
        events.emit(None, || panic!("built after the last watcher went"));
        let mut watch = events.watch();
        events.emit(None, || scaled(1));
        assert_eq!(next(&mut watch).await, (1, 1));
    }

    #[test]
    fn every_move_of_a_worker_has_its_name() {
        let moves = [
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
        for (from, to, name) in moves {
            assert_eq!(worker_event(from, to), name);
            assert!(NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn every_state_of_the_pool_has_its_name() {
        for state in ["ready", "draining", "drained", "resumed", "shut_down"] {
            let name = What::Pool { state, reason: String::new() }.name();
            assert_eq!(name.strip_prefix("pool:"), Some(state));
        }
    }
}
