//! Encodes events as messages of a stream, straight from the log: the worker's text is copied once.

use std::{sync::Arc, time::SystemTime};

use bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, skip_field},
};
use prost_types::Timestamp;

use crate::{
    broker::MessageBatch,
    model::{Event, EventBody, Outcome},
    pool::Accepted,
};

use super::{
    convert,
    fields::{FieldPrefix, delimited_size, number_size},
    proto,
};

/// A message of the stream that Execute or `StreamResults` returns.
#[derive(Debug)]
pub(crate) struct EventMessage {
    /// All bytes before the text or the inner message.
    prefix: FieldPrefix,
    body: MessageBody,
}

/// The method that returns the stream, which determines the message around each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamMethod {
    Execute,
    StreamResults,
}

#[derive(Debug)]
enum MessageBody {
    Accepted(Accepted),
    /// A message or a result, with its text in the log.
    Text(Arc<Event>),
    /// A message of a batch, by its position.
    BatchItem(Arc<MessageBatch>, usize),
    /// Any other event.
    Event(Box<proto::Event>),
}

/// Encodes the messages of one stream.
#[derive(Debug)]
pub(super) struct EventEncoder {
    method: StreamMethod,
    /// The time of the last event and its encoding: events that arrived together share it.
    at: SystemTime,
    timestamp: FieldPrefix,
}

/// Field numbers of the protocol.
mod field {
    pub(super) const EXECUTE_ACCEPTED: u8 = 1;
    pub(super) const EXECUTE_EVENT: u8 = 2;
    pub(super) const STREAM_EVENT: u8 = 1;
    /// Of `SubmitResponse`.
    pub(super) const ACCEPTED_QUERY_ID: u8 = 1;
    pub(super) const ACCEPTED_KIND: u8 = 2;
    pub(super) const ACCEPTED_STATE: u8 = 3;
    pub(super) const ACCEPTED_EXISTED: u8 = 4;
    /// Of `Event`.
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

impl EventEncoder {
    pub(super) fn new(method: StreamMethod) -> Self {
        // The epoch is encoded as an empty timestamp.
        Self { method, at: SystemTime::UNIX_EPOCH, timestamp: FieldPrefix::default() }
    }

    pub(super) fn accepted(accepted: Accepted) -> EventMessage {
        let prefix = FieldPrefix::of_message(field::EXECUTE_ACCEPTED, accepted_len(&accepted));
        EventMessage { prefix, body: MessageBody::Accepted(accepted) }
    }

    pub(super) fn event(&mut self, event: Arc<Event>) -> EventMessage {
        let (body_field, text) = match &event.body {
            EventBody::Message { content } => (field::MESSAGE, content),
            EventBody::Ended(Outcome::Complete { result }) => (field::COMPLETE, result),
            _ => {
                let event = Box::new(convert::event(Event::clone(&event)));
                let prefix = FieldPrefix::of_message(self.outer_field(), event.encoded_len());
                return EventMessage { prefix, body: MessageBody::Event(event) };
            }
        };
        let prefix = self.text_prefix((event.sequence, event.attempt, event.at), body_field, text.len());
        EventMessage { prefix, body: MessageBody::Text(event) }
    }

    pub(super) fn batch_item(&mut self, batch: Arc<MessageBatch>, index: usize) -> EventMessage {
        let place = (batch.sequence(index), batch.attempt, batch.at);
        let prefix = self.text_prefix(place, field::MESSAGE, batch.message(index).len());
        EventMessage { prefix, body: MessageBody::BatchItem(batch, index) }
    }

    /// Number of the field that holds the event in the message around it.
    fn outer_field(&self) -> u8 {
        match self.method {
            StreamMethod::Execute => field::EXECUTE_EVENT,
            StreamMethod::StreamResults => field::STREAM_EVENT,
        }
    }

    /// All bytes before a text of this length, given the sequence number, attempt and time of the event.
    fn text_prefix(
        &mut self,
        (sequence, attempt, at): (u64, u32, SystemTime),
        body_field: u8,
        text: usize,
    ) -> FieldPrefix {
        if self.at != at {
            (self.at, self.timestamp) = (at, timestamp(at));
        }
        let inner = delimited_size(text);
        let event = number_size(sequence)
            + number_size(attempt.into())
            + delimited_size(self.timestamp.len())
            + delimited_size(inner);
        let mut prefix = FieldPrefix::of_message(self.outer_field(), event);
        prefix.number(field::SEQUENCE, sequence);
        prefix.number(field::ATTEMPT, attempt.into());
        prefix.length(field::AT, self.timestamp.len());
        prefix.timestamp(&self.timestamp);
        prefix.length(body_field, inner);
        prefix.length(field::TEXT, text);
        prefix
    }
}

impl MessageBody {
    /// The text after the prefix; empty if a message follows it.
    fn text(&self) -> &[u8] {
        match self {
            Self::BatchItem(batch, index) => batch.message(*index),
            Self::Text(event) => match &event.body {
                EventBody::Message { content } => content.as_bytes(),
                EventBody::Ended(Outcome::Complete { result }) => result.as_bytes(),
                _ => &[],
            },
            Self::Accepted(_) | Self::Event(_) => &[],
        }
    }
}

impl Message for EventMessage {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(self.prefix.bytes());
        match &self.body {
            MessageBody::Accepted(accepted) => encode_accepted(accepted, buffer),
            MessageBody::Event(event) => event.encode_raw(buffer),
            MessageBody::Text(_) | MessageBody::BatchItem(..) => buffer.put_slice(self.body.text()),
        }
    }

    fn encoded_len(&self) -> usize {
        let body = match &self.body {
            MessageBody::Accepted(accepted) => accepted_len(accepted),
            MessageBody::Event(event) => event.encoded_len(),
            MessageBody::Text(_) | MessageBody::BatchItem(..) => self.body.text().len(),
        };
        self.prefix.len() + body
    }

    /// Never used: the server only sends these messages.
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
        *self = Self { prefix: FieldPrefix::default(), body: MessageBody::Event(Box::default()) };
    }
}

fn timestamp(at: SystemTime) -> FieldPrefix {
    let Timestamp { seconds, nanos } = at.into();
    let mut timestamp = FieldPrefix::default();
    timestamp.number(field::SECONDS, seconds.cast_unsigned());
    timestamp.number(field::NANOS, nanos.unsigned_abs().into());
    timestamp
}

fn accepted_len(accepted: &Accepted) -> usize {
    let (id, kind) = (accepted.id.as_str().len(), accepted.kind.len());
    delimited_size(id)
        + delimited_size(kind)
        + number_size(state_number(accepted))
        + number_size(accepted.submitted.existed.into())
}

fn state_number(accepted: &Accepted) -> u64 {
    proto::QueryState::from(accepted.submitted.state) as u64
}

/// Encodes a `SubmitResponse` without allocating its strings.
fn encode_accepted(accepted: &Accepted, buffer: &mut impl BufMut) {
    for (field, text) in [(field::ACCEPTED_QUERY_ID, accepted.id.as_str()), (field::ACCEPTED_KIND, &accepted.kind)] {
        buffer.put_slice(FieldPrefix::of_message(field, text.len()).bytes());
        buffer.put_slice(text.as_bytes());
    }
    let mut rest = FieldPrefix::default();
    rest.number(field::ACCEPTED_STATE, state_number(accepted));
    rest.number(field::ACCEPTED_EXISTED, accepted.submitted.existed.into());
    buffer.put_slice(rest.bytes());
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        api::proto::{ExecuteResponse, StreamResultsResponse, execute_response},
        broker::{EventSlice, MessageBatchBuilder, Output, Submitted},
        model::{Failure, FailureReason, QueryId, RejectReason, Retrying, StopStage},
        protocol::JsonText,
        state::QueryState,
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
            1 => Just(EventBody::Ended(Outcome::Cancelled { reason: "why".into(), stage: StopStage::Sigterm })),
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
    fn batch_is_encoded_like_its_messages_one_by_one() {
        let mut builder = MessageBatchBuilder::default();
        for n in 0..300 {
            builder.push_checked(&format!("\"{}\"", "x".repeat(n)), 0);
        }
        let Some(Output::Messages(mut batch)) = builder.take() else { panic!("there are several") };
        (batch.first, batch.attempt) = (100, 2);
        batch.at = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 12_345);
        let batch = Arc::new(batch);
        let events = EventSlice::Messages(batch.clone(), 0..300).to_events();
        for (method, index) in METHODS.into_iter().flat_map(|method| (0..300).map(move |index| (method, index))) {
            let message = EventEncoder::new(method).batch_item(batch.clone(), index);
            assert_eq!(message.encode_to_vec(), expected(method, &events[index]));
        }
    }

    #[test]
    fn accepted_query_is_encoded_as_prost_does() {
        for (id, state, existed) in [("q", QueryState::Pending, false), (&*"q".repeat(128), QueryState::Complete, true)]
        {
            let accepted = Accepted {
                id: QueryId::parse(id).unwrap(),
                kind: "k".repeat(200).into(),
                submitted: Submitted { state, existed },
            };
            let response = convert::submit_response(&accepted);
            let expected = ExecuteResponse { body: Some(execute_response::Body::Accepted(response)) };
            assert_eq!(EventEncoder::accepted(accepted).encode_to_vec(), expected.encode_to_vec());
        }
    }

    proptest! {
        #[test]
        fn event_is_encoded_as_prost_does(event in event()) {
            let event = Arc::new(event);
            for method in METHODS {
                let mut encoding = EventEncoder::new(method);
                // The second time with the timestamp of the first.
                for _ in 0..2 {
                    prop_assert_eq!(encoding.event(event.clone()).encode_to_vec(), expected(method, &event));
                }
            }
        }
    }
}
