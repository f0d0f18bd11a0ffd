//! A query's event log as a response: one cursor, read in batches, each batch written in one go.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tonic::Status;

use crate::{
    broker::{EventReader, Unavailable},
    model::{Event, EventBody},
};

use super::{
    errors,
    grpc::{self, trailers},
    proto::{ExecuteResponse, SubmitResponse, execute_response},
    wire::{Envelope, put_event},
};

/// With this much ready to be sent, no more is read.
const ENOUGH: usize = 64 * 1024;
/// A text of at least this length is not copied, but sent from where it is.
const LARGE: usize = 16 * 1024;

type Batch = Result<Vec<Event>, Unavailable>;
type Reading = Pin<Box<dyn Future<Output = (Box<dyn EventReader>, Batch)> + Send>>;

/// Ends after the query's final event.
pub(super) struct Events {
    envelope: Envelope,
    stage: Stage,
    /// What can be sent, in this order, and then what is in `out`.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    out: BytesMut,
    /// What the call ends with, if not OK.
    ending: Option<Status>,
}

enum Stage {
    Reading(Reading),
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
        grpc::put(&mut events.out, &ExecuteResponse { body: Some(execute_response::Body::Accepted(accepted)) });
        events
    }

    fn new(envelope: Envelope, reader: Box<dyn EventReader>) -> Self {
        Self {
            envelope,
            stage: Stage::Reading(read(reader)),
            ready: VecDeque::new(),
            ready_bytes: 0,
            out: BytesMut::new(),
            ending: None,
        }
    }

    /// Takes what the cursor has come to.
    fn take(&mut self, reader: Box<dyn EventReader>, batch: Batch) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                self.ending = Some(errors::unavailable(&error));
                self.stage = Stage::Read;
                return;
            }
        };
        self.stage = if batch.is_empty() { Stage::Read } else { Stage::Reading(read(reader)) };
        let texts: usize = batch.iter().map(|event| event.body.weight()).filter(|weight| *weight < LARGE).sum();
        self.out.reserve(texts + batch.len() * OVERHEAD);
        for event in batch {
            if let (Envelope::Execute, EventBody::Ended(outcome)) = (self.envelope, &event.body) {
                self.ending = errors::ending(outcome);
            }
            if matches!(event.body, EventBody::Ended(_)) {
                self.stage = Stage::Read;
            }
            let text = put_event(&mut self.out, self.envelope, event, LARGE);
            if let Some(text) = text {
                self.push_out();
                self.ready_bytes += text.len();
                self.ready.push_back(text);
            }
        }
    }

    fn push_out(&mut self) {
        let bytes = self.out.split().freeze();
        self.ready_bytes += bytes.len();
        self.ready.push_back(bytes);
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() && !self.out.is_empty() {
            return Some(std::mem::take(&mut self.out).freeze());
        }
        let piece = self.ready.pop_front()?;
        self.ready_bytes -= piece.len();
        Some(piece)
    }
}

/// What an event takes beside its text, mostly less.
const OVERHEAD: usize = 48;

fn read(mut reader: Box<dyn EventReader>) -> Reading {
    Box::pin(async move {
        let batch = reader.next().await;
        (reader, batch)
    })
}

impl Body for Events {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        while this.ready_bytes + this.out.len() < ENOUGH {
            let Stage::Reading(reading) = &mut this.stage else { break };
            let Poll::Ready((reader, batch)) = reading.as_mut().poll(context) else { break };
            this.take(reader, batch);
        }
        if let Some(piece) = this.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match this.stage {
            Stage::Reading(_) => Poll::Pending,
            Stage::Read => {
                this.stage = Stage::Over;
                Poll::Ready(Some(Ok(Frame::trailers(trailers(this.ending.as_ref())))))
            }
            Stage::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}
