//! A query's event log as the stream of messages that Execute and `StreamResults` answer with.

use std::{
    future::poll_fn,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
    vec,
};

use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use crate::{
    broker::{EventReader, EventSlice, MessageBatch},
    model::{Event, EventBody},
    pool::Accepted,
};

use super::{
    encoding::{Encoding, EventMessage, StreamMethod},
    errors,
};

/// The answer to Execute waits this long for the first event: a short query is then answered in one write, which halves the
/// cost of its answer on both sides. The client of a long query learns this much later that it was accepted.
const FIRST_EVENT_DELAY: Duration = Duration::from_millis(5);

/// Ends after the query's final event.
pub(super) struct Events {
    method: StreamMethod,
    encoding: Encoding,
    /// `None` once everything was read.
    reader: Option<EventReader>,
    accepted: Option<Accepted>,
    /// Events that were read and not sent yet: the rest of a batch of messages, and what comes after it.
    messages: Option<(Arc<MessageBatch>, Range<usize>)>,
    pending: vec::IntoIter<EventSlice>,
    /// Status that ends the call, if not OK.
    status: Option<Status>,
}

impl Events {
    /// The answer to `StreamResults`: each event. A query that ended badly is no error here.
    pub(super) fn stream_results(reader: EventReader) -> Self {
        Self::new(StreamMethod::StreamResults, reader, None)
    }

    /// The answer to Execute: the accepted query, each event, and a status that says how the query ended.
    pub(super) fn execute(accepted: Accepted, reader: EventReader) -> Self {
        Self::new(StreamMethod::Execute, reader, Some(accepted))
    }

    fn new(method: StreamMethod, reader: EventReader, accepted: Option<Accepted>) -> Self {
        Self {
            method,
            encoding: Encoding::new(method),
            reader: Some(reader),
            accepted,
            messages: None,
            pending: Vec::new().into_iter(),
            status: None,
        }
    }

    /// Waits for the first event, but not for long.
    pub(super) async fn wait_for_first_event(&mut self) {
        // An event that is there costs no timer.
        let mut first_event = poll_fn(|context| self.poll_read(context));
        let _ = timeout(FIRST_EVENT_DELAY, &mut first_event).await;
    }

    /// Reads the next batch, once the last one was taken. Ready if there is one, or if there will be none.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(()) };
        match ready!(Pin::new(reader).poll_next(context)) {
            Some(Ok(batch)) => self.pending = batch.into_iter(),
            Some(Err(error)) => {
                self.status = Some(errors::unavailable(&error));
                self.reader = None;
            }
            None => self.reader = None,
        }
        Poll::Ready(())
    }

    fn next_message(&mut self) -> Option<EventMessage> {
        if let Some(accepted) = self.accepted.take() {
            return Some(Encoding::accepted(accepted));
        }
        loop {
            if let Some((batch, range)) = &mut self.messages {
                match range.next() {
                    Some(index) => return Some(self.encoding.batch_item(batch.clone(), index)),
                    None => self.messages = None,
                }
            }
            match self.pending.next()? {
                EventSlice::Messages(batch, range) => self.messages = Some((batch, range)),
                EventSlice::One(event) => {
                    self.note_end(&event);
                    return Some(self.encoding.event(event));
                }
            }
        }
    }

    /// Nothing follows the final event, which decides the status of an execution.
    fn note_end(&mut self, event: &Event) {
        if let EventBody::Ended(outcome) = &event.body {
            self.reader = None;
            if self.method == StreamMethod::Execute {
                self.status = errors::ending(outcome);
            }
        }
    }
}

impl Stream for Events {
    type Item = Result<EventMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(message) = self.next_message() {
                return Poll::Ready(Some(Ok(message)));
            }
            if self.reader.is_none() {
                return Poll::Ready(self.status.take().map(Err));
            }
            ready!(self.poll_read(context));
        }
    }
}
