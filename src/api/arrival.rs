//! Bounds the time in which a request must have arrived: headers alone, or a message sent byte by byte, hold a call open
//! for nothing. In a conversation each message of the client must have arrived so soon after the one before.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::RecvStream;
use http::request::Parts;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::{errors, grpc::PREFIX_BYTES};

/// Calls to this service are conversations: their requests come as the client thinks of them.
const CONVERSATIONS: &str = "/grpc.reflection.";

/// The body of a request, which must be there in time.
pub(super) struct Arriving {
    stream: RecvStream,
    limit: Duration,
    due: Instant,
    /// Of a conversation: where its messages end.
    messages: Option<Messages>,
    /// Made when there is first something to wait for, which mostly there is not.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Finds the ends of messages in a stream of bytes.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    /// How much of the prefix has come.
    known: usize,
    /// How much of the message itself has not.
    missing: usize,
}

impl Messages {
    /// Whether a message ends within these bytes.
    fn end_within(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while !bytes.is_empty() {
            let of_prefix = bytes.len().min(PREFIX_BYTES - self.known);
            self.prefix[self.known..][..of_prefix].copy_from_slice(&bytes[..of_prefix]);
            bytes = &bytes[of_prefix..];
            self.known += of_prefix;
            if of_prefix > 0 && self.known == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
            }
            let of_message = bytes.len().min(self.missing);
            bytes = &bytes[of_message..];
            self.missing -= of_message;
            if self.known == PREFIX_BYTES && self.missing == 0 {
                self.known = 0;
                ended = true;
            }
        }
        ended
    }
}

impl Arriving {
    pub(super) fn new(stream: RecvStream, head: &Parts, limit: Duration) -> Self {
        let messages = head.uri.path().starts_with(CONVERSATIONS).then(Messages::default);
        Self { stream, limit, due: Instant::now() + limit, messages, timer: None }
    }

    pub(super) fn is_conversation(&self) -> bool {
        self.messages.is_some()
    }

    /// What has come, and what it says after its last byte.
    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(data) = ready!(self.stream.poll_data(context)) {
            let data = data?;
            // The client may send as much again: what is kept of it is for others to bound.
            self.stream.flow_control().release_capacity(data.len())?;
            self.note(&data);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    /// In a conversation, a message that has come gives time for the next one.
    fn note(&mut self, data: &[u8]) {
        if self.messages.as_mut().is_some_and(|messages| messages.end_within(data)) {
            self.due = Instant::now() + self.limit;
            self.timer = None;
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = self.poll_stream(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::cancelled(error.to_string()))));
        }
        let due = self.due;
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep_until(due))).as_mut().poll(context));
        Poll::Ready(Some(Err(errors::too_slow(self.limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After which of these pieces a message has ended.
    fn ends(pieces: &[&[u8]]) -> Vec<bool> {
        let mut messages = Messages::default();
        pieces.iter().map(|piece| messages.end_within(piece)).collect()
    }

    #[test]
    fn a_message_ends_where_its_prefix_says() {
        assert_eq!(ends(&[&[0, 0, 0, 0, 2, 1, 2], &[0], &[0, 0, 0, 1], &[1]]), [true, false, false, true]);
        assert_eq!(ends(&[&[0, 0, 0, 0, 2, 1], &[2, 0, 0, 0, 0, 1], &[9]]), [false, true, true]);
        assert_eq!(ends(&[&[0, 0, 0, 0], &[0], &[], &[0, 0, 0, 0, 0]]), [false, true, false, true]);
    }
}
