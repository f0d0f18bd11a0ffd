//! The steps that the worker can run, and their JSON.

use std::{collections::HashMap, rc::Rc, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{attempt::Attempt, signals::SignalName};

pub(crate) type Steps = Rc<[Step]>;

/// The steps for every occasion.
pub(crate) struct Scripts {
    pub start: Steps,
    pub idle: Steps,
    pub after_complete: Steps,
    pub on_cancel: Steps,
    pub on_shutdown: Steps,
}

/// One thing to do; the program's header says what each means.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    Connect,
    ConnectFromOutside,
    Ready(Map<String, Value>),
    Session(String),
    Message(Box<RawValue>),
    Messages(Flow),
    Complete(Box<RawValue>),
    Error(Map<String, Value>),
    Heartbeat,
    ShutdownAck,
    Env,
    Pid,
    Nonce,
    Frame,
    /// Up to this attempt of the query, these steps in place of the rest.
    UntilAttempt(u64, Vec<Step>),
    /// If this is the worker of that id, these steps in place of the rest.
    IfWorker(u64, Vec<Step>),
    SleepMs(u64),
    Hang,
    HangHard,
    IgnoreCancel,
    IgnoreTerm,
    Exit(i32),
    Abort,
    Signal(SignalName),
    CloseSocket,
    CloseStdout,
    Done,
    HalfLine,
    Raw(String),
    RawHex(String),
    LongLine(usize),
    UnknownType,
    SecondReady,
    Stale,
    MessageAfterComplete,
    TwoCompletes,
    Grandchild,
    GrandchildSetsid,
    Stderr(String),
    Stdout(String),
    FloodStderr(u64),
    AllocateMb(usize),
    /// If the file is there, removes it and takes these steps before the rest.
    Armed(String, Vec<Step>),
    AwaitFile(String),
    BeatMs(u64),
    Try(Attempt),
}

/// A row of messages.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    pub count: u64,
    #[serde(default)]
    pub size: usize,
    #[serde(default)]
    delay_ms: u64,
}

/// The script of one query.
pub(crate) struct QueryScript {
    pub steps: Steps,
    pub on_cancel: Option<Steps>,
}

impl Default for Scripts {
    fn default() -> Self {
        let steps = |text| parse(text).expect("the default steps are well-formed");
        Self {
            start: steps(r#"["connect", "ready"]"#),
            idle: steps("[]"),
            after_complete: steps("[]"),
            on_cancel: steps(r#"[{"error": {"error": "cancelled", "code": "cancelled"}}]"#),
            on_shutdown: steps(r#"["shutdown_ack", {"exit": 0}]"#),
        }
    }
}

impl Flow {
    pub(crate) fn delay(self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }
}

impl QueryScript {
    pub(crate) fn read(payload: &RawValue) -> serde_json::Result<Self> {
        let fields = fields(payload);
        let steps = match fields.get("steps") {
            Some(steps) => parse(steps.get())?,
            None => echo(payload)?,
        };
        let on_cancel = fields.get("on_cancel").map(|steps| parse(steps.get())).transpose()?;
        Ok(Self { steps, on_cancel })
    }
}

/// The fields of an object, as they were written; none for any other value.
pub(crate) fn fields(payload: &RawValue) -> HashMap<String, Box<RawValue>> {
    serde_json::from_str(payload.get()).unwrap_or_default()
}

pub(crate) fn parse(steps: &str) -> serde_json::Result<Steps> {
    let steps: Vec<Box<RawValue>> = serde_json::from_str(steps)?;
    steps.iter().map(|step| parse_step(step.get())).collect()
}

/// `ready` is the one step that comes with a value and without.
fn parse_step(step: &str) -> serde_json::Result<Step> {
    match step {
        r#""ready""# => Ok(Step::Ready(Map::new())),
        other => serde_json::from_str(other),
    }
}

fn echo(payload: &RawValue) -> serde_json::Result<Steps> {
    let result = RawValue::from_string(format!(r#"{{"echo": {payload}}}"#))?;
    Ok([Step::Message(payload.to_owned()), Step::Complete(result)].into())
}
