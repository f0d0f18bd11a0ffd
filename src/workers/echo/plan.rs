//! The actions that a payload asks for.

use std::{ops::RangeInclusive, time::Duration};

use serde::Deserialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

/// Limit of a wait: long enough for everyone, short enough to be added to an `Instant`.
const WAIT_MAX: Duration = Duration::from_hours(365 * 24);

/// The text around the padding of a message of a given size.
const PADDING_FRAME: [&str; 2] = ["{\"pad\":\"", "\"}"];

/// Sizes of messages in bytes: from an object with one character to what a demonstration should use.
pub const MESSAGE_SIZES: RangeInclusive<u64> = 11..=64 << 20;

/// The actions of a query, in this order: name a session, stream, sleep, end.
#[derive(Debug)]
pub(super) struct EchoPlan {
    pub session: Option<String>,
    pub stream: Option<MessageStream>,
    pub sleep: Option<Duration>,
    pub ending: EchoEnding,
}

#[derive(Debug)]
pub(super) struct MessageStream {
    pub count: u64,
    /// Time between two messages.
    pub delay: Duration,
    /// Content of all messages; without it they are numbered.
    pub content: Option<Box<RawValue>>,
}

#[derive(Debug)]
pub(super) enum EchoEnding {
    /// Sends the payload as a message and as the result.
    Echo,
    Complete(Box<RawValue>),
    Fail {
        error: String,
        code: Option<String>,
        retryable: Option<bool>,
    },
    Crash(u8),
}

/// The answer to a payload that asks for messages of a size and for nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizedAnswer {
    pub messages: u64,
    /// Content of each message.
    pub content: String,
    pub result: String,
}

/// The answer to such a payload; `None` for any other.
#[must_use]
pub fn sized_answer(payload: &str) -> Option<SizedAnswer> {
    let options: PayloadOptions = serde_json::from_str(payload).ok()?;
    match options.plan() {
        EchoPlan {
            session: None,
            stream: Some(MessageStream { count: messages, delay: Duration::ZERO, content: Some(content) }),
            sleep: None,
            ending: EchoEnding::Complete(result),
        } => Some(SizedAnswer { messages, content: content.get().to_owned(), result: result.get().to_owned() }),
        _ => None,
    }
}

/// The fields of a payload that this worker knows; others are ignored.
#[derive(Deserialize)]
struct PayloadOptions {
    session: Option<String>,
    stream: Option<u64>,
    size: Option<u64>,
    delay_ms: Option<u64>,
    sleep_ms: Option<u64>,
    fail: Option<String>,
    code: Option<String>,
    retryable: Option<bool>,
    crash: Option<CrashOption>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CrashOption {
    Enabled(bool),
    ExitCode(u8),
}

impl EchoPlan {
    /// A payload that is not of the form of [`PayloadOptions`] is echoed.
    pub(super) fn parse(payload: &RawValue) -> Self {
        serde_json::from_str(payload.get()).map_or_else(|_| Self::echo(), PayloadOptions::plan)
    }

    fn echo() -> Self {
        Self { session: None, stream: None, sleep: None, ending: EchoEnding::Echo }
    }
}

impl PayloadOptions {
    fn plan(mut self) -> EchoPlan {
        if let Some(size) = self.size {
            if !MESSAGE_SIZES.contains(&size) {
                return EchoPlan { ending: Self::bad_size(size), ..EchoPlan::echo() };
            }
            self.stream = self.stream.or(Some(1));
        }
        let (delay, content) = (wait(self.delay_ms.unwrap_or_default()), self.size.map(padding));
        EchoPlan {
            stream: self.stream.map(|count| MessageStream { count, delay, content }),
            sleep: self.sleep_ms.map(wait),
            session: self.session.clone(),
            ending: self.ending(),
        }
    }

    fn bad_size(size: u64) -> EchoEnding {
        let error = format!("size is {size}; give {} to {} bytes", MESSAGE_SIZES.start(), MESSAGE_SIZES.end());
        EchoEnding::Fail { error, code: Some("bad_size".to_owned()), retryable: None }
    }

    fn ending(self) -> EchoEnding {
        let crash = match self.crash {
            Some(CrashOption::ExitCode(code)) => Some(code),
            Some(CrashOption::Enabled(true)) => Some(1),
            Some(CrashOption::Enabled(false)) | None => None,
        };
        if let Some(code) = crash {
            return EchoEnding::Crash(code);
        }
        if let Some(error) = self.fail {
            return EchoEnding::Fail { error, code: self.code, retryable: self.retryable };
        }
        let done = [("streamed", self.stream), ("slept_ms", self.sleep_ms)];
        let done: Map<_, _> =
            done.into_iter().filter_map(|(name, count)| Some((name.to_owned(), Value::from(count?)))).collect();
        if done.is_empty() { EchoEnding::Echo } else { EchoEnding::Complete(raw(&Value::Object(done))) }
    }
}

/// An object of exactly this many bytes, within [`MESSAGE_SIZES`].
fn padding(size: u64) -> Box<RawValue> {
    let padding =
        usize::try_from(size).unwrap_or_default().saturating_sub(PADDING_FRAME[0].len() + PADDING_FRAME[1].len());
    let text = format!("{}{}{}", PADDING_FRAME[0], "x".repeat(padding), PADDING_FRAME[1]);
    RawValue::from_string(text).expect("an object with a text is JSON")
}

fn wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(WAIT_MAX)
}

/// The result of an echo, which contains the exact text of the payload.
pub(super) fn echo_of(payload: &RawValue) -> Box<RawValue> {
    RawValue::from_string(format!("{{\"echo\":{payload}}}")).expect("JSON inside JSON is JSON")
}

pub(super) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a JSON value can be written as JSON")
}
