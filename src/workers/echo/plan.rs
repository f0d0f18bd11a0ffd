//! What a payload asks the echo worker to do.

use std::{ops::RangeInclusive, time::Duration};

use serde::Deserialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

/// Longer than anyone waits, and short enough to be added to the clock.
const LONGEST_WAIT: Duration = Duration::from_hours(365 * 24);

/// What surrounds the filling of a message of a given size.
const FRAME: [&str; 2] = ["{\"pad\":\"", "\"}"];

/// What a message's content may have in bytes: not less than an object with something in it, not more than a process that only
/// demonstrates things should take.
pub const SIZES: RangeInclusive<u64> = 11..=64 << 20;

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
    /// What all messages say; without it they are numbered.
    pub content: Option<Box<RawValue>>,
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

/// What the worker says to a payload that asks for messages of a size and for nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub messages: u64,
    /// Of each message.
    pub content: String,
    pub result: String,
}

/// The answer to such a payload; `None` to any other.
#[must_use]
pub fn answer(payload: &str) -> Option<Answer> {
    let wishes: Wishes = serde_json::from_str(payload).ok()?;
    match wishes.plan() {
        Plan {
            session: None,
            stream: Some(Streaming { count: messages, delay: Duration::ZERO, content: Some(content) }),
            sleep: None,
            ending: Ending::Complete(result),
        } => Some(Answer { messages, content: content.get().to_owned(), result: result.get().to_owned() }),
        _ => None,
    }
}

/// A payload that says something to this worker; other fields do not matter.
#[derive(Deserialize)]
struct Wishes {
    session: Option<String>,
    stream: Option<u64>,
    size: Option<u64>,
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
    fn plan(mut self) -> Plan {
        if let Some(size) = self.size {
            if !SIZES.contains(&size) {
                return Plan { ending: Self::bad_size(size), ..Plan::echo() };
            }
            self.stream = self.stream.or(Some(1));
        }
        let (delay, content) = (wait(self.delay_ms.unwrap_or_default()), self.size.map(filler));
        Plan {
            stream: self.stream.map(|count| Streaming { count, delay, content }),
            sleep: self.sleep_ms.map(wait),
            session: self.session.clone(),
            ending: self.ending(),
        }
    }

    fn bad_size(size: u64) -> Ending {
        let error = format!("size is {size}; give {} to {} bytes", SIZES.start(), SIZES.end());
        Ending::Fail { error, code: Some("bad_size".to_owned()), retryable: None }
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

/// An object of exactly so many bytes, which are within [`SIZES`].
fn filler(size: u64) -> Box<RawValue> {
    let padding = usize::try_from(size).unwrap_or_default().saturating_sub(FRAME[0].len() + FRAME[1].len());
    let text = format!("{}{}{}", FRAME[0], "x".repeat(padding), FRAME[1]);
    RawValue::from_string(text).expect("an object with a text is JSON")
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
