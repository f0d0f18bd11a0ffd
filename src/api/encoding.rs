//! An event as a message of a stream, encoded straight from the log: the text that a worker sent is copied once.

use std::{sync::Arc, time::SystemTime};

use bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, encoded_len_varint, skip_field},
};
use prost_types::Timestamp;

use crate::model::{Event, EventBody, MessageBatch, Outcome};

use super::{convert, proto};

/// A message of the stream that Execute or `StreamResults` answers with.
#[derive(Debug)]
pub(crate) struct EventMessage {
    method: StreamMethod,
    body: MessageBody,
}

/// The method that answers with the stream, which decides the message around each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamMethod {
    Execute,
    StreamResults,
}

#[derive(Debug)]
enum MessageBody {
    Accepted(proto::SubmitResponse),
    /// A message or a result, whose text is encoded from the log.
    Text(Arc<Event>),
    /// A message of a batch, by its position.
    BatchItem(Arc<MessageBatch>, usize),
    /// Any other event.
    Event(Box<proto::Event>),
}

/// Field numbers of the protocol.
mod field {
    pub(super) const EXECUTE_ACCEPTED: u8 = 1;
    pub(super) const EXECUTE_EVENT: u8 = 2;
    pub(super) const STREAM_EVENT: u8 = 1;
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

impl EventMessage {
    pub(super) fn accepted(accepted: proto::SubmitResponse) -> Self {
        Self { method: StreamMethod::Execute, body: MessageBody::Accepted(accepted) }
    }

    pub(super) fn event(method: StreamMethod, event: Arc<Event>) -> Self {
        let body = match event.body {
            EventBody::Message { .. } | EventBody::Ended(Outcome::Complete { .. }) => MessageBody::Text(event),
            _ => MessageBody::Event(Box::new(convert::event(Event::clone(&event)))),
        };
        Self { method, body }
    }

    pub(super) fn batch_item(method: StreamMethod, batch: Arc<MessageBatch>, index: usize) -> Self {
        Self { method, body: MessageBody::BatchItem(batch, index) }
    }

    /// Number of the field that holds the event in the message around it.
    fn outer_field(&self) -> u8 {
        match (&self.body, self.method) {
            (MessageBody::Accepted(_), _) => field::EXECUTE_ACCEPTED,
            (_, StreamMethod::Execute) => field::EXECUTE_EVENT,
            (_, StreamMethod::StreamResults) => field::STREAM_EVENT,
        }
    }
}

impl MessageBody {
    fn view(&self) -> View<'_> {
        match self {
            Self::Accepted(accepted) => View::Accepted(accepted),
            Self::Event(event) => View::Event(event),
            Self::Text(event) => View::Text(TextEvent::of_event(event)),
            Self::BatchItem(batch, index) => View::Text(TextEvent::of_batch(batch, *index)),
        }
    }
}

impl Message for EventMessage {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        let mut head = Head::default();
        let view = self.body.view();
        head.length(self.outer_field(), view.encoded_len());
        if let View::Text(event) = &view {
            event.encode_head(&mut head);
        }
        buffer.put_slice(head.bytes());
        match view {
            View::Text(event) => buffer.put_slice(event.text),
            View::Accepted(accepted) => accepted.encode_raw(buffer),
            View::Event(event) => event.encode_raw(buffer),
        }
    }

    fn encoded_len(&self) -> usize {
        delimited(self.body.view().encoded_len())
    }

    /// The server only sends these messages.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buffer, context)
    }

    fn clear(&mut self) {
        self.body = MessageBody::Event(Box::default());
    }
}

/// The message inside the outer one.
enum View<'a> {
    Text(TextEvent<'a>),
    Accepted(&'a proto::SubmitResponse),
    Event(&'a proto::Event),
}

impl View<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Text(event) => event.encoded_len(),
            Self::Accepted(accepted) => accepted.encoded_len(),
            Self::Event(event) => event.encoded_len(),
        }
    }
}

/// An event that is little more than its text.
struct TextEvent<'a> {
    sequence: u64,
    attempt: u32,
    at: Timestamp,
    /// Field that holds the text's message.
    body_field: u8,
    text: &'a [u8],
}

impl<'a> TextEvent<'a> {
    fn of_event(event: &'a Event) -> Self {
        let (body_field, text) = match &event.body {
            EventBody::Ended(Outcome::Complete { result }) => (field::COMPLETE, result.as_bytes()),
            EventBody::Message { content } => (field::MESSAGE, content.as_bytes()),
            _ => unreachable!("events without a text are converted"),
        };
        Self::new(event.sequence, event.attempt, event.at, body_field, text)
    }

    fn of_batch(batch: &'a MessageBatch, index: usize) -> Self {
        Self::new(batch.sequence(index), batch.attempt, batch.at, field::MESSAGE, batch.texts.as_bytes(index))
    }

    fn new(sequence: u64, attempt: u32, at: SystemTime, body_field: u8, text: &'a [u8]) -> Self {
        Self { sequence, attempt, at: at.into(), body_field, text }
    }

    fn timestamp_len(&self) -> usize {
        number(self.at.seconds.cast_unsigned()) + number(self.at.nanos.unsigned_abs().into())
    }

    fn encoded_len(&self) -> usize {
        number(self.sequence)
            + number(self.attempt.into())
            + delimited(self.timestamp_len())
            + delimited(delimited(self.text.len()))
    }

    /// Everything up to the text.
    fn encode_head(&self, head: &mut Head) {
        head.number(field::SEQUENCE, self.sequence);
        head.number(field::ATTEMPT, self.attempt.into());
        head.length(field::AT, self.timestamp_len());
        head.number(field::SECONDS, self.at.seconds.cast_unsigned());
        head.number(field::NANOS, self.at.nanos.unsigned_abs().into());
        head.length(self.body_field, delimited(self.text.len()));
        head.length(field::TEXT, self.text.len());
    }
}

/// The fields before a text, put together on the stack and appended in one go: appending byte by byte asks for room each time.
#[derive(Debug)]
struct Head {
    bytes: [u8; Head::CAPACITY],
    length: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; Self::CAPACITY], length: 0 }
    }
}

impl Head {
    /// Eight keys, and numbers of ten bytes at most.
    const CAPACITY: usize = 96;

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
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

/// Size of a field with a length; its key takes one byte, as all keys here do.
fn delimited(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// Size of a field with a number; zero is not sent.
fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        api::proto::{ExecuteResponse, StreamResultsResponse, execute_response},
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

    const METHODS: [StreamMethod; 2] = [StreamMethod::Execute, StreamMethod::StreamResults];

    /// The message around an event, as prost encodes it.
    fn expected(method: StreamMethod, event: &Event) -> Vec<u8> {
        let event = convert::event(event.clone());
        match method {
            StreamMethod::Execute => {
                ExecuteResponse { body: Some(execute_response::Body::Event(event)) }.encode_to_vec()
            }
            StreamMethod::StreamResults => StreamResultsResponse { event: Some(event) }.encode_to_vec(),
        }
    }

    #[test]
    fn a_batch_is_encoded_like_its_messages_one_by_one() {
        let mut gathering = Gathering::default();
        for n in 0..300 {
            gathering.add_checked(&format!("\"{}\"", "x".repeat(n)), 0);
        }
        let Some(Gathered::Several(texts)) = gathering.take() else { panic!("there are several") };
        let at = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 12_345);
        let batch = Arc::new(MessageBatch { first: 100, attempt: 2, at, texts });
        for (method, index) in METHODS.into_iter().flat_map(|method| (0..300).map(move |index| (method, index))) {
            let message = EventMessage::batch_item(method, batch.clone(), index);
            assert_eq!(message.encode_to_vec(), expected(method, &batch.event(index)));
        }
    }

    #[test]
    fn an_accepted_query_is_encoded_as_the_protocol_says() {
        let accepted = proto::SubmitResponse {
            query_id: "q".repeat(200),
            kind: "k".to_owned(),
            state: proto::QueryState::Processing.into(),
            existed: true,
        };
        let expected = ExecuteResponse { body: Some(execute_response::Body::Accepted(accepted.clone())) };
        assert_eq!(EventMessage::accepted(accepted).encode_to_vec(), expected.encode_to_vec());
    }

    proptest! {
        #[test]
        fn an_event_is_encoded_as_the_protocol_says(event in event()) {
            let event = Arc::new(event);
            for method in METHODS {
                let message = EventMessage::event(method, event.clone());
                prop_assert_eq!(message.encode_to_vec(), expected(method, &event));
            }
        }
    }
}
