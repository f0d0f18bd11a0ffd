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
    check_encoding(&parts.headers)?;
    let bytes = whole(body, limit).await?;
    M::decode(bytes).map_err(|error| Status::internal(format!("the request is not what its method takes: {error}")))
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(&ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let text = format!("{encoding:?} is not a known compression; send messages as they are (identity)");
            let mut status = Status::unimplemented(text);
            status.metadata_mut().insert("grpc-accept-encoding", "identity".parse().expect("it is plain ASCII"));
            Err(status)
        }
        _ => Ok(()),
    }
}

/// The bytes of the one message that a body holds. Nearly always they come in one piece, which is not copied.
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
        if self.so_far()[0] != 0 {
            return Err(Status::internal("the message is marked as compressed, and no compression was named"));
        }
        if self.so_far().len() > PREFIX_BYTES + length {
            return Err(Status::internal("there is more than one message in the request, or more than it says"));
        }
        Ok(())
    }

    fn message(self) -> Result<Bytes, Status> {
        match self.length() {
            Some(length) if self.so_far().len() == PREFIX_BYTES + length => {}
            _ => return Err(Status::internal("the request ended before its message did")),
        }
        let mut bytes = if self.first.is_empty() { self.joined.freeze() } else { self.first };
        bytes.advance(PREFIX_BYTES);
        Ok(bytes)
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
