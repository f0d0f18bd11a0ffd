//! An event as bytes on the wire, straight from the log: the text that a worker sent is not made into a message first.

use std::{ops::Range, time::SystemTime};

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, encoded_len_varint},
};
use prost_types::Timestamp;

use crate::model::{Event, EventBody, Messages, Outcome};

use super::{convert, grpc::prefix};

/// The message that an event is sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope {
    /// `ExecuteResponse`
    Execute,
    /// `StreamResultsResponse`
    Stream,
}

/// The numbers that fields have in the protocol.
mod field {
    pub(super) const SEQUENCE: u8 = 1;
    pub(super) const ATTEMPT: u8 = 2;
    pub(super) const AT: u8 = 3;
    pub(super) const MESSAGE: u8 = 5;
    pub(super) const COMPLETE: u8 = 7;
    /// Of `Timestamp`.
    pub(super) const SECONDS: u8 = 1;
    pub(super) const NANOS: u8 = 2;
    /// Of `MessageEvent` and of `CompleteEvent`.
    pub(super) const TEXT: u8 = 1;
}

impl Envelope {
    fn event(self) -> u8 {
        match self {
            Self::Execute => 2,
            Self::Stream => 1,
        }
    }
}

/// The time of the last event as it is written: events that came together have the same.
#[derive(Debug)]
pub(super) struct Stamp {
    at: SystemTime,
    written: Head,
}

impl Default for Stamp {
    fn default() -> Self {
        // This one is written as nothing at all.
        Self { at: SystemTime::UNIX_EPOCH, written: Head::default() }
    }
}

impl Stamp {
    fn of(&mut self, at: SystemTime) -> &[u8] {
        if self.at != at {
            let Timestamp { seconds, nanos } = at.into();
            let mut written = Head::default();
            written.number(field::SECONDS, seconds.cast_unsigned());
            written.number(field::NANOS, nanos.unsigned_abs().into());
            *self = Self { at, written };
        }
        self.written.bytes()
    }
}

/// Appends an event with all that stands before it. A text of `large` bytes or more is not appended but given back: it comes
/// right after what is there.
pub(super) fn put_event(
    out: &mut BytesMut,
    envelope: Envelope,
    event: &Event,
    large: usize,
    stamp: &mut Stamp,
) -> Option<Bytes> {
    let (body, text) = match &event.body {
        EventBody::Message { content } => (field::MESSAGE, content),
        EventBody::Ended(Outcome::Complete { result }) => (field::COMPLETE, result),
        _ => {
            let event = convert::event(event.clone());
            out.put_slice(Head::new(envelope, event.encoded_len()).bytes());
            event.encode_raw(out);
            return None;
        }
    };
    let at = stamp.of(event.at);
    out.put_slice(Head::of_text(envelope, (event.sequence, event.attempt, at), body, text.len()).bytes());
    if text.len() >= large {
        return Some(text.clone().into_bytes());
    }
    out.put_slice(text.as_bytes());
    None
}

/// Appends messages that came together, each as an event.
pub(super) fn put_messages(
    out: &mut BytesMut,
    envelope: Envelope,
    messages: &Messages,
    range: Range<usize>,
    stamp: &mut Stamp,
) {
    let at = stamp.of(messages.at);
    for index in range {
        let text = messages.texts.as_bytes(index);
        let place = (messages.first + index as u64, messages.attempt, at);
        out.put_slice(Head::of_text(envelope, place, field::MESSAGE, text.len()).bytes());
        out.put_slice(text);
    }
}

/// What stands before a text, put together here and appended in one go: to append byte by byte is to ask for room each time.
#[derive(Debug)]
struct Head {
    bytes: [u8; Head::ROOM],
    length: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }
    }
}

impl Head {
    /// A prefix, eight keys, and numbers of ten bytes at most.
    const ROOM: usize = 96;

    fn new(envelope: Envelope, event: usize) -> Self {
        let mut head = Self::default();
        head.extend(&prefix(delimited(event)));
        head.length(envelope.event(), event);
        head
    }

    /// All that stands before the text of an event, given its number, its attempt and its time as it is written.
    fn of_text(envelope: Envelope, (sequence, attempt, at): (u64, u32, &[u8]), body: u8, text: usize) -> Self {
        let text_length = delimited(text);
        let length = number(sequence) + number(attempt.into()) + delimited(at.len()) + delimited(text_length);
        let mut head = Self::new(envelope, length);
        head.number(field::SEQUENCE, sequence);
        head.number(field::ATTEMPT, attempt.into());
        head.length(field::AT, at.len());
        head.extend(at);
        head.length(body, text_length);
        head.length(field::TEXT, text);
        head
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Zero is not sent.
    fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.push(field << 3);
            self.varint(value);
        }
    }

    fn length(&mut self, field: u8, length: usize) {
        self.push(field << 3 | WireType::LengthDelimited as u8);
        self.varint(length as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.push((value & 0x7f) as u8);
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
}

/// What a field with a length takes, if its key takes one byte, as all keys here do.
fn delimited(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// What a number takes; zero is not sent.
fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        api::{
            grpc,
            proto::{ExecuteResponse, StreamResultsResponse, execute_response},
        },
        model::{Failure, FailureReason, RejectReason, Retrying, Rung},
        protocol::{Gathered, Gathering, JsonText},
    };

    fn text() -> impl Strategy<Value = JsonText> {
        let json = |text: String| JsonText::parse(serde_json::json!(text).to_string()).unwrap();
        prop_oneof!["(?s).{0,200}".prop_map(json), (0..70_000_usize).prop_map(move |length| json("x".repeat(length)))]
    }

    fn body() -> impl Strategy<Value = EventBody> {
        let failure = || Failure::new(FailureReason::Reported, "it failed");
        prop_oneof![
            4 => text().prop_map(|content| EventBody::Message { content }),
            4 => text().prop_map(|result| EventBody::Ended(Outcome::Complete { result })),
            1 => "[a-z]{0,9}".prop_map(|id| EventBody::Session { session_id: id.into() }),
            1 => (0..9_u64).prop_map(|first| EventBody::Gap { first, last: first + 3 }),
            1 => Just(EventBody::Ended(Outcome::Error(Box::new(failure())))),
            1 => Just(EventBody::Ended(Outcome::Cancelled { reason: "why".into(), rung: Rung::Sigterm })),
            1 => Just(EventBody::Ended(Outcome::Rejected { reason: RejectReason::Busy, message: "no".into() })),
            1 => Just(EventBody::Retrying(Box::new(Retrying {
                failed_attempt: 1,
                max_attempts: 3,
                delay: Duration::from_millis(1_500),
                failure: failure(),
            }))),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        let time =
            (0..u64::MAX >> 20, 0..1_000_000_000_u32).prop_map(|(s, n)| SystemTime::UNIX_EPOCH + Duration::new(s, n));
        let sequence = prop_oneof![0..300_u64, any::<u64>()];
        (sequence, 0..300_u32, time, body()).prop_map(|(sequence, attempt, at, body)| Event {
            sequence,
            attempt,
            at,
            body,
        })
    }

    #[test]
    fn messages_that_came_together_are_written_like_those_that_came_one_by_one() {
        let mut gathering = Gathering::default();
        for n in 0..300 {
            gathering.add_checked(&format!("\"{}\"", "x".repeat(n)), 0);
        }
        let Some(Gathered::Several(texts)) = gathering.take() else { panic!("there are several") };
        let at = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 12_345);
        let messages = Messages { first: 100, attempt: 2, at, texts };
        for envelope in [Envelope::Execute, Envelope::Stream] {
            let (mut together, mut apart) = (BytesMut::new(), BytesMut::new());
            let mut stamp = Stamp::default();
            put_messages(&mut together, envelope, &messages, 3..290, &mut stamp);
            for index in 3..290 {
                put_event(&mut apart, envelope, &messages.event(index), usize::MAX, &mut stamp);
            }
            assert_eq!(together, apart);
        }
    }

    proptest! {
        #[test]
        fn an_event_is_written_as_the_protocol_says(event in event()) {
            let told = convert::event(event.clone());
            let mut expected = BytesMut::new();
            let execute = ExecuteResponse { body: Some(execute_response::Body::Event(told.clone())) };
            grpc::put(&mut expected, &execute);
            grpc::put(&mut expected, &StreamResultsResponse { event: Some(told) });
            for large in [0, 16 * 1024, usize::MAX] {
                let (mut out, mut stamp) = (BytesMut::new(), Stamp::default());
                for envelope in [Envelope::Execute, Envelope::Stream] {
                    let text = put_event(&mut out, envelope, &event, large, &mut stamp);
                    out.extend_from_slice(&text.unwrap_or_default());
                }
                prop_assert_eq!(&out, &expected);
            }
        }
    }
}
