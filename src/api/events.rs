//! A query's event log as a response: one cursor, read in batches, each batch written in one go.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::{
    broker::{EventReader, Progress},
    model::{Event, EventBody, Stretch},
    protocol::ALONE,
};

use super::{
    errors,
    grpc::{self, trailers},
    proto::{ExecuteResponse, SubmitResponse, execute_response},
    wire::{Envelope, Stamp, put_event, put_messages},
};

/// With this much ready to be sent, no more is read.
const ENOUGH: usize = 32 * 1024;
/// How long the beginning of an answer waits for the first event. A short query is answered in one go then, which halves what
/// its answer costs both sides; whoever waits for a long one hears this much later that it was accepted.
const COMPANY: Duration = Duration::from_millis(5);

/// Ends after the query's final event.
pub(super) struct Events {
    stage: Stage,
    outgoing: Outgoing,
    patience: Option<Pin<Box<Sleep>>>,
}

/// What was read and is not sent yet.
struct Outgoing {
    envelope: Envelope,
    /// What can be sent, in this order, and then what is in `out`.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    out: BytesMut,
    stamp: Stamp,
    /// Whether an event has come, and whether the final one has.
    begun: bool,
    ended: bool,
    /// What the call ends with, if not OK.
    ending: Option<Status>,
}

enum Stage {
    Reading(Box<dyn EventReader>),
    /// Everything was read; the trailers are still to be sent.
    Read,
    Over,
}

impl Events {
    /// What `StreamResults` answers: each event. That a query ended badly is no error here.
    pub(super) fn stream(reader: Box<dyn EventReader>) -> Self {
        Self::new(Envelope::Stream, reader)
    }

    /// What Execute answers: what was accepted, each event, and the status that says how the query ended.
    pub(super) fn execution(accepted: SubmitResponse, reader: Box<dyn EventReader>) -> Self {
        let mut events = Self::new(Envelope::Execute, reader);
        let accepted = ExecuteResponse { body: Some(execute_response::Body::Accepted(accepted)) };
        grpc::put(&mut events.outgoing.out, &accepted);
        events
    }

    fn new(envelope: Envelope, reader: Box<dyn EventReader>) -> Self {
        let outgoing = Outgoing {
            envelope,
            ready: VecDeque::new(),
            ready_bytes: 0,
            out: BytesMut::new(),
            stamp: Stamp::default(),
            begun: false,
            ended: false,
            ending: None,
        };
        Self { stage: Stage::Reading(reader), outgoing, patience: None }
    }

    /// Ready when the answer is to begin: there is an event, or none has come for as long as the beginning may wait.
    pub(super) fn poll_company(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.read(context);
        if self.outgoing.begun || !matches!(self.stage, Stage::Reading(_)) {
            self.patience = None;
            return Poll::Ready(());
        }
        self.patience.get_or_insert_with(|| Box::pin(sleep(COMPANY))).as_mut().poll(context)
    }

    /// Reads what is there, up to what is enough for now.
    fn read(&mut self, context: &mut Context<'_>) {
        let outgoing = &mut self.outgoing;
        while outgoing.bytes() < ENOUGH {
            let Stage::Reading(reader) = &mut self.stage else { break };
            match reader.poll_next(context, &mut |stretch| outgoing.take(stretch)) {
                Poll::Pending => break,
                Poll::Ready(Ok(Progress::Events)) if !outgoing.ended => {}
                Poll::Ready(Ok(Progress::Events | Progress::End)) => self.stage = Stage::Read,
                Poll::Ready(Err(error)) => {
                    outgoing.ending = Some(errors::unavailable(&error));
                    self.stage = Stage::Read;
                }
            }
        }
    }
}

impl Outgoing {
    fn bytes(&self) -> usize {
        self.ready_bytes + self.out.len()
    }

    /// Takes what the cursor has come to.
    fn take(&mut self, stretch: Stretch<'_>) {
        self.begun = true;
        match stretch {
            Stretch::One(event) => self.take_event(event),
            Stretch::Messages(messages, range) => {
                self.out.reserve(messages.texts.bytes_of(&range) + range.len() * OVERHEAD);
                put_messages(&mut self.out, self.envelope, messages, range, &mut self.stamp);
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        if let EventBody::Ended(outcome) = &event.body {
            self.ended = true;
            if self.envelope == Envelope::Execute {
                self.ending = errors::ending(outcome);
            }
        }
        let weight = event.body.weight();
        self.out.reserve(if weight < ALONE { weight + OVERHEAD } else { OVERHEAD });
        let text = put_event(&mut self.out, self.envelope, event, ALONE, &mut self.stamp);
        if let Some(text) = text {
            self.push_out();
            self.ready_bytes += text.len();
            self.ready.push_back(text);
        }
    }

    fn push_out(&mut self) {
        let bytes = self.out.split().freeze();
        self.ready_bytes += bytes.len();
        self.ready.push_back(bytes);
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() && !self.out.is_empty() {
            // What has been sent by the time that there is more leaves its room for that.
            let out = if self.ended { std::mem::take(&mut self.out) } else { self.out.split() };
            return Some(out.freeze());
        }
        let piece = self.ready.pop_front()?;
        self.ready_bytes -= piece.len();
        Some(piece)
    }
}

/// What an event takes beside its text, mostly less.
const OVERHEAD: usize = 48;

impl Body for Events {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.read(context);
        if let Some(piece) = this.outgoing.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match this.stage {
            Stage::Reading(_) => Poll::Pending,
            Stage::Read => {
                this.stage = Stage::Over;
                Poll::Ready(Some(Ok(Frame::trailers(trailers(this.outgoing.ending.as_ref())))))
            }
            Stage::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}
