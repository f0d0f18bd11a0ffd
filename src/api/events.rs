//! A query's event log as the stream of messages that Execute and `StreamResults` answer with.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use crate::{
    broker::EventReader,
    model::{Event, EventBody, EventSlice},
};

use super::{
    encoding::{EventMessage, StreamMethod},
    errors,
    proto::SubmitResponse,
};

/// The answer to Execute waits this long for the first event: a short query is then answered in one write, which halves the
/// cost of its answer on both sides. The client of a long query learns this much later that it was accepted.
const FIRST_EVENT_DELAY: Duration = Duration::from_millis(5);

/// Ends after the query's final event.
pub(super) struct Events {
    method: StreamMethod,
    /// `None` once everything was read.
    reader: Option<EventReader>,
    accepted: Option<SubmitResponse>,
    /// Events that were read and not sent yet.
    pending: VecDeque<EventSlice>,
    /// Status that ends the call, if not OK.
    status: Option<Status>,
}

impl Events {
    /// The answer to `StreamResults`: each event. A query that ended badly is no error here.
    pub(super) fn stream_results(reader: EventReader) -> Self {
        Self::new(StreamMethod::StreamResults, reader, None)
    }

    /// The answer to Execute: the accepted query, each event, and a status that says how the query ended.
    pub(super) fn execute(accepted: SubmitResponse, reader: EventReader) -> Self {
        Self::new(StreamMethod::Execute, reader, Some(accepted))
    }

    fn new(method: StreamMethod, reader: EventReader, accepted: Option<SubmitResponse>) -> Self {
        Self { method, reader: Some(reader), accepted, pending: VecDeque::new(), status: None }
    }

    /// Waits for the first event, but not for long.
    pub(super) async fn wait_for_first_event(&mut self) {
        // An event that is there costs no timer.
        let mut first_event = poll_fn(|context| self.poll_read(context));
        let _ = timeout(FIRST_EVENT_DELAY, &mut first_event).await;
    }

    /// Reads the next batch. Ready if there is one, or if there will be none.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(()) };
        match ready!(reader.as_mut().poll_next(context)) {
            Some(Ok(batch)) => self.pending.extend(batch),
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
            return Some(EventMessage::accepted(accepted));
        }
        if let EventSlice::Messages(batch, range) = self.pending.front_mut()?
            && let Some(index) = range.next()
        {
            let batch = batch.clone();
            if range.start == range.end {
                self.pending.pop_front();
            }
            return Some(EventMessage::batch_item(self.method, batch, index));
        }
        let EventSlice::One(event) = self.pending.pop_front()? else { return self.next_message() };
        self.note_end(&event);
        Some(EventMessage::event(self.method, event))
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
