//! Tells what the answers of an Execute call are, from the first bytes of each, without decoding them.

/// What gRPC puts before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// What tells of which kind an event is stands within so many bytes, after its number, its attempt and its time.
const HEAD: usize = 64;

/// The fields on the way there, as tags with their wire types: `ExecuteResponse.event`, and two of `Event`.
const EVENT: u64 = 2 << 3 | 2;
const MESSAGE: u64 = 5 << 3 | 2;
const COMPLETE: u64 = 7 << 3 | 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Complete,
    Other,
}

/// Looks at one chunk after the other; what it was in the middle of goes on in the next one.
#[derive(Debug, Default)]
pub(super) struct Glance {
    /// The beginning of an answer that was cut off.
    begun: Vec<u8>,
    /// What is left of an answer that has been looked at.
    rest: usize,
}

impl Glance {
    pub(super) fn at(&mut self, mut chunk: &[u8], mut tell: impl FnMut(Kind)) {
        while !chunk.is_empty() {
            if self.rest > 0 {
                let passed = self.rest.min(chunk.len());
                self.rest -= passed;
                chunk = &chunk[passed..];
            } else if !self.begun.is_empty() || chunk.len() < wanted(chunk) {
                // One byte at a time: this happens once in a chunk at most.
                self.begun.push(chunk[0]);
                chunk = &chunk[1..];
                self.look_at_begun(&mut tell);
            } else {
                tell(kind(&chunk[PREFIX..wanted(chunk)]));
                self.rest = length(chunk);
                chunk = &chunk[PREFIX..];
            }
        }
    }

    fn look_at_begun(&mut self, tell: &mut impl FnMut(Kind)) {
        let wanted = wanted(&self.begun);
        if self.begun.len() == wanted {
            tell(kind(&self.begun[PREFIX..]));
            self.rest = length(&self.begun) + PREFIX - wanted;
            self.begun.clear();
        }
    }
}

/// How many bytes it takes to look at the answer that begins here.
fn wanted(answer: &[u8]) -> usize {
    PREFIX + if answer.len() < PREFIX { 1 } else { length(answer).min(HEAD) }
}

/// Of an answer, without its prefix.
fn length(answer: &[u8]) -> usize {
    let bytes = [answer[1], answer[2], answer[3], answer[4]];
    usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX)
}

/// The kind of an answer that begins with `head`.
fn kind(mut head: &[u8]) -> Kind {
    let mut within_event = false;
    while let Some(tag) = varint(&mut head) {
        match (within_event, tag) {
            (true, MESSAGE) => return Kind::Message,
            (true, COMPLETE) => return Kind::Complete,
            (false, EVENT) => {
                within_event = true;
                varint(&mut head);
            }
            (_, tag) if pass(&mut head, tag).is_none() => break,
            _ => {}
        }
    }
    Kind::Other
}

/// Passes over the value of a field.
fn pass(head: &mut &[u8], tag: u64) -> Option<()> {
    let bytes = match tag & 7 {
        0 => return varint(head).map(drop),
        1 => 8,
        2 => usize::try_from(varint(head)?).ok()?,
        5 => 4,
        _ => return None,
    };
    *head = head.get(bytes..)?;
    Some(())
}

fn varint(head: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = head.split_first()?;
        *head = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use prost::Message;

    use super::*;
    use crate::api::proto::{
        CompleteEvent, Event, ExecuteResponse, MessageEvent, RetryingEvent, SubmitResponse, event::Body,
        execute_response,
    };

    fn framed(body: execute_response::Body) -> Vec<u8> {
        let message = ExecuteResponse { body: Some(body) }.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0][..], &length, &message].concat()
    }

    fn event(sequence: u64, body: Body) -> Vec<u8> {
        let at = Some(SystemTime::now().into());
        framed(execute_response::Body::Event(Event { sequence, attempt: u32::MAX, at, body: Some(body) }))
    }

    /// The answer to a query, and what it consists of.
    fn answer() -> (Vec<u8>, Vec<Kind>) {
        let accepted = SubmitResponse { query_id: "i".repeat(200), ..Default::default() };
        let message = |size: usize| Body::Message(MessageEvent { content: "x".repeat(size) });
        let parts = [
            (framed(execute_response::Body::Accepted(accepted)), Kind::Other),
            (event(0, message(0)), Kind::Message),
            (event(1, Body::Retrying(RetryingEvent { message: "*:".repeat(99), ..Default::default() })), Kind::Other),
            (event(u64::MAX, message(3_000)), Kind::Message),
            (vec![0; 5], Kind::Other),
            (event(2, Body::Complete(CompleteEvent { result: "{}".to_owned() })), Kind::Complete),
        ];
        let kinds = parts.iter().map(|(_, kind)| *kind).collect();
        (parts.into_iter().flat_map(|(bytes, _)| bytes).collect(), kinds)
    }

    #[test]
    fn every_answer_is_told_wherever_its_bytes_are_cut() {
        let (bytes, kinds) = answer();
        for size in [1, 2, 3, 5, 7, 64, 100, 1_000, bytes.len()] {
            let (mut glance, mut told) = (Glance::default(), Vec::new());
            for chunk in bytes.chunks(size) {
                glance.at(chunk, |kind| told.push(kind));
            }
            assert_eq!(told, kinds, "in chunks of {size}");
        }
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut bytes = vec![0, 0, 0, 0, 200];
        bytes.extend((0..=255_u8).rev().cycle().take(10_000));
        Glance::default().at(&bytes, |_| {});
    }
}
