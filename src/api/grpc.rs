//! gRPC over HTTP/2 as far as one service needs it: one message in, some out, and a status.
//!
//! tonic's own way through its router, codec and streams is made for everything; a query comes by this one, which costs a
//! fraction of it.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE, request};
use http_body::{Body as HttpBody, Frame};
use prost::Message;
use tonic::{Code, Status};

use super::{answer::Answer, arrival::Arriving, errors};

/// A byte for whether the message is compressed, which none is, and four for its length.
pub(super) const PREFIX_BYTES: usize = 5;

// Names that are ready made: a text would be read and checked each time.
pub(super) static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Reads the one message of a request, of at most `limit` bytes.
pub(super) async fn read<M: Message + Default>(
    parts: &request::Parts,
    body: Arriving,
    limit: usize,
) -> Result<M, Status> {
    let mut bytes = receive(parts, body, limit).await?;
    bytes.advance(PREFIX_BYTES);
    M::decode(bytes).map_err(|error| errors::undecodable(&error.to_string()))
}

/// Waits for the one message of a request, of at most `limit` bytes, and gives it with its prefix.
pub(super) async fn receive(parts: &request::Parts, body: Arriving, limit: usize) -> Result<Bytes, Status> {
    check_encoding(&parts.headers)?;
    whole(body, limit).await
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(&ENCODING) {
        Some(encoding) if encoding != "identity" => {
            Err(errors::unknown_compression(&String::from_utf8_lossy(encoding.as_bytes())))
        }
        _ => Ok(()),
    }
}

/// The bytes of the one message that a body holds, and its prefix. Nearly always they come in one piece, which is not copied.
async fn whole(mut body: Arriving, limit: usize) -> Result<Bytes, Status> {
    let mut pieces = Pieces::default();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame?.into_data() {
            pieces.add(data);
            pieces.check(limit)?;
        }
    }
    pieces.message()
}

#[derive(Default)]
struct Pieces {
    first: Bytes,
    /// If there are several, all of them.
    joined: BytesMut,
}

impl Pieces {
    fn add(&mut self, data: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = data;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&data);
    }

    fn so_far(&self) -> &[u8] {
        if self.first.is_empty() { &self.joined } else { &self.first }
    }

    /// How long the message says it is, once it has.
    fn length(&self) -> Option<usize> {
        let (prefix, _) = self.so_far().split_first_chunk::<PREFIX_BYTES>()?;
        let [_, length @ ..] = *prefix;
        Some(u32::from_be_bytes(length) as usize)
    }

    fn check(&self, limit: usize) -> Result<(), Status> {
        let Some(length) = self.length() else { return Ok(()) };
        if length > limit {
            return Err(errors::too_large(length, limit));
        }
        match self.so_far()[0] {
            0 => {}
            1 => return Err(errors::wrongly_compressed()),
            flag => {
                return Err(errors::malformed(&format!("the message begins with {flag}, which is no flag; send 0")));
            }
        }
        if self.so_far().len() > PREFIX_BYTES + length {
            let more =
                "there is more in the request than the one message that its method takes; send each in its own call";
            return Err(errors::malformed(more));
        }
        Ok(())
    }

    fn message(self) -> Result<Bytes, Status> {
        match self.length() {
            Some(length) if self.so_far().len() == PREFIX_BYTES + length => {}
            _ if self.so_far().is_empty() => {
                return Err(errors::malformed("there is no message in the request; send one, if only an empty one"));
            }
            _ => {
                return Err(errors::malformed(
                    "the request ended before its message did; send all that its prefix says",
                ));
            }
        }
        Ok(if self.first.is_empty() { self.joined.freeze() } else { self.first })
    }
}

/// What stands before a message of this length.
pub(super) fn prefix(length: usize) -> [u8; PREFIX_BYTES] {
    let length = u32::try_from(length).expect("no message is anywhere near 4 GiB: lines and requests are limited");
    let [a, b, c, d] = length.to_be_bytes();
    [0, a, b, c, d]
}

/// Appends a message as it goes over the wire.
pub(super) fn put(out: &mut BytesMut, message: &impl Message) {
    let length = message.encoded_len();
    out.reserve(PREFIX_BYTES + length);
    out.put_slice(&prefix(length));
    message.encode_raw(out);
}

/// A response that has begun well; how it ends is in its trailers.
pub(super) fn response(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A response of one message.
pub(super) fn reply(message: &impl Message) -> Response<Answer> {
    let mut bytes = BytesMut::new();
    put(&mut bytes, message);
    response(Answer::Reply(Reply { bytes: Some(bytes.freeze()), ended: false }))
}

pub(super) fn trailers(status: Option<&Status>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    match status {
        None => drop(trailers.insert(&STATUS, HeaderValue::from_static("0"))),
        // What cannot be said in a header is left out, rather than the code.
        Some(status) if status.add_header(&mut trailers).is_ok() => {}
        Some(status) => drop(trailers.insert(&STATUS, HeaderValue::from(status.code() as i32))),
    }
    trailers
}

/// One message and a good end.
pub(super) struct Reply {
    bytes: Option<Bytes>,
    ended: bool,
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let ended = std::mem::replace(&mut self.ended, true);
        Poll::Ready((!ended).then(|| Ok(Frame::trailers(trailers(None)))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// An answer without a message.
pub(super) fn refusal(status: Status) -> Response<Answer> {
    debug_assert_ne!(status.code(), Code::Ok);
    status.into_http()
}
