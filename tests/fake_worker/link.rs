//! State shared by the thread that reads from the pool and the thread that runs the steps.

use std::{
    io::{BufRead, ErrorKind},
    process::exit,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Instant,
};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    die, say,
    wire::{Frame, Wire},
};

pub(crate) struct Query {
    pub id: String,
    pub payload: Box<RawValue>,
    /// The whole frame, as it came.
    pub frame: Box<RawValue>,
}

/// The next thing to do for a worker without a query.
pub(crate) enum Task {
    Query(Query),
    ShutDown,
}

/// A request of the pool that ends the steps that run.
pub(crate) enum Interrupt {
    Cancel,
    ShutDown,
}

pub(crate) struct Link {
    state: Mutex<State>,
    changed: Condvar,
    born: Instant,
}

#[derive(Default)]
struct State {
    waiting: Option<Query>,
    /// The id of the query that runs.
    running: Option<String>,
    /// The id of a query that is to be cancelled.
    cancelled: Option<String>,
    shutdown: Option<ShutdownMode>,
    input: InputMode,
    processed: u64,
}

/// A shutdown waits for the running query, or does not.
#[derive(Clone, Copy, PartialEq)]
enum ShutdownMode {
    Graceful,
    Immediate,
}

#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
enum InputMode {
    #[default]
    All,
    /// Ignores cancels.
    NoCancel,
    /// Expects the connection to end, because it was closed at this end.
    Closed,
    /// Reads nothing any more.
    Unread,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolFrame {
    r#type: PoolFrameType,
    request_id: Option<String>,
    payload: Option<Box<RawValue>>,
    graceful: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PoolFrameType {
    Query,
    Cancel,
    Shutdown,
    HealthCheck,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), born: Instant::now() }
    }

    /// Waits for something to do. The query it returns counts as running.
    pub(crate) fn next(&self) -> Task {
        let mut state = self.lock();
        loop {
            if let Some(query) = state.waiting.take() {
                state.running = Some(query.id.clone());
                return Task::Query(query);
            }
            if state.shutdown.take().is_some() {
                return Task::ShutDown;
            }
            state = self.changed.wait(state).expect("no thread panics");
        }
    }

    /// Waits until then, or for ever, or until the pool wants something else.
    pub(crate) fn pause(&self, until: Option<Instant>) -> Result<(), Interrupt> {
        let mut state = self.lock();
        loop {
            if let Some(interrupt) = state.take_interrupt() {
                return Err(interrupt);
            }
            let Some(until) = until else {
                state = self.changed.wait(state).expect("no thread panics");
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            state = self.changed.wait_timeout(state, left).expect("no thread panics").0;
        }
    }

    /// The query that runs has ended. Called before the pool is told, because the next one may come at once.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        if state.running.take().is_some() {
            state.processed += 1;
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().running.is_some()
    }

    /// Number of queries that this worker has been given and has not ended.
    pub(crate) fn load(&self) -> usize {
        let state = self.lock();
        usize::from(state.running.is_some()) + usize::from(state.waiting.is_some())
    }

    pub(crate) fn ignore_cancel(&self) {
        self.restrict_input(InputMode::NoCancel);
    }

    pub(crate) fn close_input(&self) {
        self.restrict_input(InputMode::Closed);
    }

    pub(crate) fn stop_reading(&self) {
        self.restrict_input(InputMode::Unread);
    }

    fn restrict_input(&self, input: InputMode) {
        let mut state = self.lock();
        if input > state.input {
            state.input = input;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    /// Reads frames from the pool until the connection ends.
    pub(crate) fn listen(self: Arc<Self>, wire: &Wire) {
        let mut reader = wire.reader();
        loop {
            let mut line = String::new();
            let outcome = reader.read_line(&mut line);
            if self.lock().input == InputMode::Unread {
                sleep_for_good();
            }
            match outcome {
                Ok(1..) => self.on_line(&line, wire),
                Ok(0) | Err(_) if self.lock().input == InputMode::Closed => return,
                Ok(0) => exit(0),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => exit(0),
                Err(error) => die(98, &format!("cannot read from the pool: {error}")),
            }
        }
    }

    fn on_line(&self, line: &str, wire: &Wire) {
        let frame: PoolFrame = serde_json::from_str(line)
            .unwrap_or_else(|error| die(98, &format!("the pool sent nonsense: {error}: {line:?}")));
        match frame {
            PoolFrame { r#type: PoolFrameType::Query, request_id: Some(id), payload: Some(payload), .. } => {
                let frame = serde_json::from_str(line).expect("it was read before");
                self.take_query(Query { id, payload, frame }, wire);
            }
            PoolFrame { r#type: PoolFrameType::Cancel, request_id: Some(id), .. } => self.lock().cancel(id),
            PoolFrame { r#type: PoolFrameType::Shutdown, graceful: Some(graceful), .. } => {
                self.lock().shutdown = Some(if graceful { ShutdownMode::Graceful } else { ShutdownMode::Immediate });
            }
            PoolFrame { r#type: PoolFrameType::HealthCheck, .. } => {
                let queries_processed = self.lock().processed;
                wire.send(&Frame::HealthOk { uptime: self.born.elapsed().as_secs_f64(), queries_processed });
            }
            _ => die(98, &format!("the pool left something out: {line:?}")),
        }
        self.changed.notify_all();
    }

    fn take_query(&self, query: Query, wire: &Wire) {
        let mut state = self.lock();
        let other = state.running.as_ref().or(state.waiting.as_ref().map(|waiting| &waiting.id));
        match other {
            Some(other) => shout([other, &query.id], wire),
            None => state.waiting = Some(query),
        }
    }
}

impl State {
    /// A cancel of a query that has ended comes too late to matter.
    fn cancel(&mut self, id: String) {
        let is_ours =
            self.running.as_ref() == Some(&id) || self.waiting.as_ref().is_some_and(|waiting| waiting.id == id);
        if is_ours && self.input < InputMode::NoCancel {
            self.cancelled = Some(id);
        }
    }

    fn take_interrupt(&mut self) -> Option<Interrupt> {
        if self.running.is_some() && self.cancelled == self.running {
            self.cancelled = None;
            return Some(Interrupt::Cancel);
        }
        if self.running.is_some() && self.shutdown == Some(ShutdownMode::Graceful) {
            return None;
        }
        self.shutdown.take().map(|_| Interrupt::ShutDown)
    }
}

/// The one thing that must never happen.
fn shout(ids: [&str; 2], wire: &Wire) -> ! {
    let text = "TWO QUERIES AT ONCE";
    let body = Map::from_iter([("error".to_owned(), Value::from(text))]);
    for request_id in ids {
        wire.send(&Frame::Error { request_id, body: &body });
    }
    say(text);
    exit(99)
}

pub(crate) fn sleep_for_good() -> ! {
    loop {
        thread::park();
    }
}
