//! The calls of the load generator. The request is encoded once, and of the answers only the counted fields are decoded,
//! because the load shares its machine with the server that it measures.

use std::{error::Error, future::poll_fn, mem, time::Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::{Code, Status, body::Body, transport::Channel};
use tower::Service;

use super::{Client, error::root_cause};
use crate::{api::proto, metrics::GRPC_CODES};

const EXECUTE: &str = "/remuda.v1.WorkerPool/Execute";
const SUBMIT: &str = "/remuda.v1.WorkerPool/Submit";
/// Bytes before each gRPC message: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// Makes the same call again and again.
#[derive(Debug, Clone)]
pub struct LoadCaller {
    channel: Channel,
    uri: Uri,
    headers: HeaderMap,
    /// The request as gRPC frames it.
    frame: Bytes,
    /// True if the answer must contain a result.
    wants_result: bool,
}

/// Messages of a query that completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallStats {
    pub messages: u64,
    pub first_message: Option<Instant>,
    has_result: bool,
}

/// A query that did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The name of its gRPC status.
    pub code: &'static str,
    pub message: String,
}

impl Client {
    /// Runs the query to its end with each call.
    #[must_use]
    pub fn execute_caller(&self, query: proto::Query) -> LoadCaller {
        let request = proto::ExecuteRequest { query_id: String::new(), query: Some(query) };
        LoadCaller { wants_result: true, ..self.load_caller(EXECUTE, &request) }
    }

    /// Submits the query with each call, and does not wait for its events.
    #[must_use]
    pub fn submit_caller(&self, query: proto::Query) -> LoadCaller {
        let request = proto::SubmitRequest { query_id: String::new(), query: Some(query) };
        self.load_caller(SUBMIT, &request)
    }

    fn load_caller(&self, path: &'static str, request: &impl Message) -> LoadCaller {
        let mut headers = self.endpoint.credentials.bearer().into_headers();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let mut frame = BytesMut::new();
        frame.put_u8(0); // Not compressed.
        frame.put_u32(u32::try_from(request.encoded_len()).expect("no request has 4 GiB"));
        request.encode(&mut frame).expect("the buffer grows");
        let frame = frame.freeze();
        LoadCaller { channel: self.channel.clone(), uri: Uri::from_static(path), headers, frame, wants_result: false }
    }
}

impl LoadCaller {
    pub async fn call(&mut self) -> Result<CallStats, CallFailure> {
        let broken = |error| CallFailure { code: "UNAVAILABLE", message: root_cause(&error) };
        poll_fn(|context| self.channel.poll_ready(context)).await.map_err(broken)?;
        let answer = self.channel.call(self.request()).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(unknown(&format!("the server answered with HTTP status {}", answer.status())));
        }
        let (parts, mut body) = answer.into_parts();
        let mut counter = AnswerCounter::default();
        // A call that fails at once has its status in the headers.
        let mut status = Status::from_header_map(&parts.headers);
        while let Some(frame) = body.frame().await {
            match frame.map_err(|status| failed(&status))?.into_data() {
                Ok(data) => counter.add(&data),
                Err(frame) => status = frame.trailers_ref().and_then(Status::from_header_map).or(status),
            }
        }
        match status {
            None => Err(unknown("the answer ended without a status")),
            Some(status) if status.code() != Code::Ok => Err(failed(&status)),
            Some(_) if self.wants_result && !counter.stats.has_result => {
                Err(unknown("the answer ended without a result"))
            }
            Some(_) => Ok(counter.stats),
        }
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::new(Full::new(self.frame.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn unknown(message: &str) -> CallFailure {
    CallFailure { code: "UNKNOWN", message: message.to_owned() }
}

fn failed(status: &Status) -> CallFailure {
    let code = usize::try_from(i32::from(status.code())).ok().and_then(|number| GRPC_CODES.get(number).copied());
    let message = status.source().map_or_else(|| status.message().to_owned(), root_cause);
    CallFailure { code: code.unwrap_or("UNKNOWN"), message }
}

/// The fields of an `ExecuteResponse` that are counted; prost skips all others.
#[derive(Message)]
struct CountedResponse {
    #[prost(message, optional, tag = "2")]
    event: Option<CountedEvent>,
}

/// The same of an `Event`.
#[derive(Message)]
struct CountedEvent {
    #[prost(message, optional, tag = "5")]
    message: Option<()>,
    #[prost(message, optional, tag = "7")]
    complete: Option<()>,
}

/// Counts the messages of one answer, which comes in chunks of any length.
#[derive(Debug, Default)]
struct AnswerCounter {
    /// The part of a message that has arrived, if the rest is in the next chunk.
    partial: BytesMut,
    stats: CallStats,
}

impl AnswerCounter {
    fn add(&mut self, chunk: &[u8]) {
        if self.partial.is_empty() {
            let rest = self.count_all(chunk);
            self.partial.extend_from_slice(rest);
        } else {
            self.partial.extend_from_slice(chunk);
            let mut bytes = mem::take(&mut self.partial);
            let rest = self.count_all(&bytes).len();
            bytes.advance(bytes.len() - rest);
            self.partial = bytes;
        }
    }

    /// Counts the whole messages in `bytes` and returns the rest.
    fn count_all<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while let Some(message) = next_message(&mut bytes) {
            self.count(message);
        }
        bytes
    }

    fn count(&mut self, message: &[u8]) {
        let Ok(CountedResponse { event: Some(event) }) = CountedResponse::decode(message) else { return };
        if event.message.is_some() {
            self.stats.messages += 1;
            self.stats.first_message.get_or_insert_with(Instant::now);
        }
        self.stats.has_result |= event.complete.is_some();
    }
}

/// Takes a whole message off the front, without its prefix.
fn next_message<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(bytes.get(1..PREFIX_BYTES)?.get_u32()).ok()?;
    let message = bytes.get(PREFIX_BYTES..PREFIX_BYTES.checked_add(length)?)?;
    *bytes = &bytes[PREFIX_BYTES + length..];
    Some(message)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::api::proto::{
        CompleteEvent, Event, ExecuteResponse, MessageEvent, RetryingEvent, SubmitResponse, event, execute_response,
    };

    fn framed(body: execute_response::Body) -> Vec<u8> {
        let message = ExecuteResponse { body: Some(body) }.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0][..], &length, &message].concat()
    }

    fn event(sequence: u64, body: event::Body) -> Vec<u8> {
        let at = Some(SystemTime::now().into());
        framed(execute_response::Body::Event(Event { sequence, attempt: u32::MAX, at, body: Some(body) }))
    }

    fn counted(answer: &[u8], chunk_size: usize) -> (u64, bool) {
        let mut counter = AnswerCounter::default();
        answer.chunks(chunk_size).for_each(|chunk| counter.add(chunk));
        assert_eq!(counter.stats.messages > 0, counter.stats.first_message.is_some());
        (counter.stats.messages, counter.stats.has_result)
    }

    #[test]
    fn answers_are_counted_wherever_their_bytes_are_cut() {
        let accepted = SubmitResponse { query_id: "i".repeat(200), ..Default::default() };
        let retrying = RetryingEvent { message: "*:".repeat(99), ..Default::default() };
        let message = |size: usize| event::Body::Message(MessageEvent { content: "x".repeat(size) });
        let mut answer = [
            framed(execute_response::Body::Accepted(accepted)),
            event(0, message(0)),
            event(1, event::Body::Retrying(retrying)),
            event(u64::MAX, message(3_000)),
            vec![0; PREFIX_BYTES],
        ]
        .concat();
        let sizes = |answer: &[u8]| [1, 2, 3, 5, 7, 64, 100, 1_000, answer.len()];
        for size in sizes(&answer) {
            assert_eq!(counted(&answer, size), (2, false), "in chunks of {size}");
        }
        answer.extend(event(2, event::Body::Complete(CompleteEvent { result: "{}".to_owned() })));
        for size in sizes(&answer) {
            assert_eq!(counted(&answer, size), (2, true), "in chunks of {size}");
        }
    }

    #[test]
    fn garbage_is_not_counted() {
        let mut bytes = vec![0, 0, 0, 0, 200];
        bytes.extend((0..=255_u8).rev().cycle().take(10_000));
        assert_eq!(counted(&bytes, 1_000), (0, false));
    }
}
