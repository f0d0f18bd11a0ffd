//! A query's event log as a stream: one cursor, read in batches, given out one by one.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    vec,
};

use tokio_stream::Stream;
use tonic::Status;

use crate::{
    broker::{EventReader, Unavailable},
    model::{Event, EventBody},
};

use super::{
    convert, errors,
    proto::{ExecuteResponse, SubmitResponse, execute_response::Body},
};

type Batch = Result<Vec<Event>, Unavailable>;
type Reading = Pin<Box<dyn Future<Output = (Box<dyn EventReader>, Batch)> + Send>>;

/// Ends after the query's final event.
pub(super) struct Events {
    batch: vec::IntoIter<Event>,
    reading: Option<Reading>,
}

impl Events {
    pub(super) fn new(reader: Box<dyn EventReader>) -> Self {
        Self { batch: Vec::new().into_iter(), reading: Some(read(reader)) }
    }
}

fn read(mut reader: Box<dyn EventReader>) -> Reading {
    Box::pin(async move {
        let batch = reader.next().await;
        (reader, batch)
    })
}

impl Stream for Events {
    type Item = Result<Event, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.batch.next() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
            let (reader, batch) = ready!(reading.as_mut().poll(context));
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    self.reading = None;
                    return Poll::Ready(Some(Err(errors::unavailable(&error))));
                }
            };
            self.reading = (!batch.is_empty()).then(|| read(reader));
            self.batch = batch.into_iter();
        }
    }
}

/// What Execute answers: what was accepted, each event, and the status that says how the query ended.
pub(super) struct Execution {
    accepted: Option<SubmitResponse>,
    events: Events,
    ending: Option<Status>,
}

impl Execution {
    pub(super) fn new(accepted: SubmitResponse, reader: Box<dyn EventReader>) -> Self {
        Self { accepted: Some(accepted), events: Events::new(reader), ending: None }
    }
}

impl Stream for Execution {
    type Item = Result<ExecuteResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let respond = |body| Poll::Ready(Some(Ok(ExecuteResponse { body: Some(body) })));
        if let Some(accepted) = self.accepted.take() {
            return respond(Body::Accepted(accepted));
        }
        let event = match ready!(Pin::new(&mut self.events).poll_next(context)) {
            Some(Ok(event)) => event,
            Some(Err(status)) => return Poll::Ready(Some(Err(status))),
            None => return Poll::Ready(self.ending.take().map(Err)),
        };
        if let EventBody::Ended(outcome) = &event.body {
            self.ending = errors::ending(outcome);
        }
        respond(Body::Event(convert::event(event)))
    }
}
