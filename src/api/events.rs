//! The event log of a query as the stream of messages that Execute and `StreamResults` return.

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
    encoding::{EventEncoder, EventMessage, StreamMethod},
    errors,
};

/// Time that the response of Execute waits for the first event. A short query is then answered in one write, which halves the
/// cost of its response on both sides; the client of a long query learns later by this time that it was accepted.
const FIRST_EVENT_DELAY: Duration = Duration::from_millis(5);

/// Ends after the query's final event.
pub(super) struct ResultStream {
    method: StreamMethod,
    encoder: EventEncoder,
    /// `None` once all events are read.
    reader: Option<EventReader>,
    accepted: Option<Accepted>,
    /// Events that were read but not sent: the rest of a batch of messages, and the events after it.
    messages: Option<(Arc<MessageBatch>, Range<usize>)>,
    pending: vec::IntoIter<EventSlice>,
    /// Status that ends the call, if not OK.
    status: Option<Status>,
}

impl ResultStream {
    /// The response of `StreamResults`: each event. The status is OK whatever the outcome of the query.
    pub(super) fn stream_results(reader: EventReader) -> Self {
        Self::new(StreamMethod::StreamResults, reader, None)
    }

    /// The response of Execute: the accepted query, each event, and a status for the outcome of the query.
    pub(super) fn execute(accepted: Accepted, reader: EventReader) -> Self {
        Self::new(StreamMethod::Execute, reader, Some(accepted))
    }

    fn new(method: StreamMethod, reader: EventReader, accepted: Option<Accepted>) -> Self {
        Self {
            method,
            encoder: EventEncoder::new(method),
            reader: Some(reader),
            accepted,
            messages: None,
            pending: Vec::new().into_iter(),
            status: None,
        }
    }

    /// Waits for the first event for at most [`FIRST_EVENT_DELAY`].
    pub(super) async fn wait_for_first_event(&mut self) {
        // `timeout` polls this before it sets its timer, so an event that is there costs no timer.
        let mut first_event = poll_fn(|context| self.poll_read(context));
        let _ = timeout(FIRST_EVENT_DELAY, &mut first_event).await;
    }

    /// Reads the next batch, once the last one is sent. Ready if there is one, or if there will be none.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(()) };
        match ready!(Pin::new(reader).poll_next(context)) {
            Some(Ok(batch)) => self.pending = batch.into_iter(),
            Some(Err(error)) => {
                self.status = Some(error.into());
                self.reader = None;
            }
            None => self.reader = None,
        }
        Poll::Ready(())
    }

    fn next_message(&mut self) -> Option<EventMessage> {
        if let Some(accepted) = self.accepted.take() {
            return Some(EventEncoder::accepted(accepted));
        }
        loop {
            if let Some((batch, range)) = &mut self.messages {
                match range.next() {
                    Some(index) => return Some(self.encoder.batch_item(batch.clone(), index)),
                    None => self.messages = None,
                }
            }
            match self.pending.next()? {
                EventSlice::Messages(batch, range) => self.messages = Some((batch, range)),
                EventSlice::One(event) => {
                    self.record_end(&event);
                    return Some(self.encoder.event(event));
                }
            }
        }
    }

    /// Closes the reader at the final event, which determines the status of Execute.
    fn record_end(&mut self, event: &Event) {
        if let EventBody::Ended(outcome) = &event.body {
            self.reader = None;
            if self.method == StreamMethod::Execute {
                self.status = errors::outcome_status(outcome);
            }
        }
    }
}

impl Stream for ResultStream {
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
