//! An event as bytes on the wire, straight from the log: the text that a worker sent is not made into a message first.

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};
use prost_types::Timestamp;

use crate::model::{Event, EventBody, Outcome};

use super::{convert, grpc::put_prefix};

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
    pub(super) const SEQUENCE: u32 = 1;
    pub(super) const ATTEMPT: u32 = 2;
    pub(super) const AT: u32 = 3;
    pub(super) const MESSAGE: u32 = 5;
    pub(super) const COMPLETE: u32 = 7;
    /// Of `MessageEvent` and of `CompleteEvent`.
    pub(super) const TEXT: u32 = 1;
}

impl Envelope {
    fn event(self) -> u32 {
        match self {
            Self::Execute => 2,
            Self::Stream => 1,
        }
    }
}

/// Appends an event with all that stands before it. A text of `large` bytes or more is not appended but given back: it comes
/// right after what is there.
pub(super) fn put_event(out: &mut BytesMut, envelope: Envelope, event: Event, large: usize) -> Option<Bytes> {
    let (body, text) = match event.body {
        EventBody::Message { content } => (field::MESSAGE, content.into_bytes()),
        EventBody::Ended(Outcome::Complete { result }) => (field::COMPLETE, result.into_bytes()),
        _ => {
            let event = convert::event(event);
            put_head(out, envelope, event.encoded_len());
            event.encode_raw(out);
            return None;
        }
    };
    let at = Timestamp::from(event.at);
    let text_length = delimited(text.len());
    let at_length = at.encoded_len();
    let length = number(event.sequence) + number(event.attempt.into()) + delimited(at_length) + delimited(text_length);
    put_head(out, envelope, length);
    put_number(out, field::SEQUENCE, event.sequence);
    put_number(out, field::ATTEMPT, event.attempt.into());
    put_length(out, field::AT, at_length);
    at.encode_raw(out);
    put_length(out, body, text_length);
    put_length(out, field::TEXT, text.len());
    if text.len() >= large {
        return Some(text);
    }
    out.put_slice(&text);
    None
}

fn put_head(out: &mut BytesMut, envelope: Envelope, event: usize) {
    put_prefix(out, delimited(event));
    put_length(out, envelope.event(), event);
}

/// What a field with a length takes, if its key takes one byte, as all keys here do.
fn delimited(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// What a number takes; zero is not sent.
fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}

fn put_number(out: &mut BytesMut, field: u32, value: u64) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
}

fn put_length(out: &mut BytesMut, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
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
        protocol::JsonText,
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

    proptest! {
        #[test]
        fn an_event_is_written_as_the_protocol_says(event in event()) {
            let told = convert::event(event.clone());
            let mut expected = BytesMut::new();
            let execute = ExecuteResponse { body: Some(execute_response::Body::Event(told.clone())) };
            grpc::put(&mut expected, &execute);
            grpc::put(&mut expected, &StreamResultsResponse { event: Some(told) });
            for large in [0, 16 * 1024, usize::MAX] {
                let mut out = BytesMut::new();
                for envelope in [Envelope::Execute, Envelope::Stream] {
                    let text = put_event(&mut out, envelope, event.clone(), large);
                    out.extend_from_slice(&text.unwrap_or_default());
                }
                prop_assert_eq!(&out, &expected);
            }
        }
    }
}
