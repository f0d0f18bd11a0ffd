//! What a payload asks the echo worker to do.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

/// Longer than anyone waits, and short enough to be added to the clock.
const LONGEST_WAIT: Duration = Duration::from_hours(365 * 24);

/// What to do, in this order: name a session, stream, sleep, and end.
#[derive(Debug)]
pub(super) struct Plan {
    pub session: Option<String>,
    pub stream: Option<Streaming>,
    pub sleep: Option<Duration>,
    pub ending: Ending,
}

#[derive(Debug)]
pub(super) struct Streaming {
    pub count: u64,
    /// Between two messages.
    pub delay: Duration,
}

#[derive(Debug)]
pub(super) enum Ending {
    /// The payload as a message, and once more as the result.
    Echo,
    Complete(Box<RawValue>),
    Fail {
        error: String,
        code: Option<String>,
        retryable: Option<bool>,
    },
    Crash(u8),
}

/// A payload that says something to this worker; other fields do not matter.
#[derive(Deserialize)]
struct Wishes {
    session: Option<String>,
    stream: Option<u64>,
    delay_ms: Option<u64>,
    sleep_ms: Option<u64>,
    fail: Option<String>,
    code: Option<String>,
    retryable: Option<bool>,
    crash: Option<Crash>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Crash {
    Wanted(bool),
    Code(u8),
}

impl Plan {
    /// A payload that does not say what to do, in the form that [`Wishes`] has, is echoed.
    pub(super) fn read(payload: &RawValue) -> Self {
        serde_json::from_str(payload.get()).map_or_else(|_| Self::echo(), Wishes::plan)
    }

    fn echo() -> Self {
        Self { session: None, stream: None, sleep: None, ending: Ending::Echo }
    }
}

impl Wishes {
    fn plan(self) -> Plan {
        let delay = wait(self.delay_ms.unwrap_or_default());
        Plan {
            stream: self.stream.map(|count| Streaming { count, delay }),
            sleep: self.sleep_ms.map(wait),
            session: self.session.clone(),
            ending: self.ending(),
        }
    }

    fn ending(self) -> Ending {
        let crash = match self.crash {
            Some(Crash::Code(code)) => Some(code),
            Some(Crash::Wanted(true)) => Some(1),
            Some(Crash::Wanted(false)) | None => None,
        };
        if let Some(code) = crash {
            return Ending::Crash(code);
        }
        if let Some(error) = self.fail {
            return Ending::Fail { error, code: self.code, retryable: self.retryable };
        }
        let done = [("streamed", self.stream), ("slept_ms", self.sleep_ms)];
        let done: Map<_, _> =
            done.into_iter().filter_map(|(name, count)| Some((name.to_owned(), Value::from(count?)))).collect();
        if done.is_empty() { Ending::Echo } else { Ending::Complete(raw(&Value::Object(done))) }
    }
}

fn wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(LONGEST_WAIT)
}

/// The payload to the letter, as a result.
pub(super) fn echo_of(payload: &RawValue) -> Box<RawValue> {
    RawValue::from_string(format!("{{\"echo\":{payload}}}")).expect("JSON inside JSON is JSON")
}

pub(super) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a JSON value can be written as JSON")
}
