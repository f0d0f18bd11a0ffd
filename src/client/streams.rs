//! The events of a query, and those of the pool, as streams.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::{ClientError, Endpoint};
use crate::api::proto::{self, Event, event::Body, execute_response};

/// Time for the status after the final event; it adds nothing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The events of one query, up to its final one.
#[derive(Debug)]
pub struct QueryEventStream {
    endpoint: Endpoint,
    source: EventSource,
    ended: bool,
}

#[derive(Debug)]
enum EventSource {
    Execute(Streaming<proto::ExecuteResponse>),
    Results(Streaming<proto::StreamResultsResponse>),
}

impl QueryEventStream {
    pub(super) fn of_execute(endpoint: Endpoint, stream: Streaming<proto::ExecuteResponse>) -> Self {
        Self { endpoint, source: EventSource::Execute(stream), ended: false }
    }

    pub(super) fn of_results(endpoint: Endpoint, stream: Streaming<proto::StreamResultsResponse>) -> Self {
        Self { endpoint, source: EventSource::Results(stream), ended: false }
    }

    /// The next event; `None` after the final one. May be dropped and called again without losing an event.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if self.ended {
            // Execute sends a status that repeats the final event. Reading it closes the call cleanly.
            let _ = timeout(CLOSE_TIMEOUT, self.source.next()).await;
            return Ok(None);
        }
        let event = self.source.next().await.map_err(|status| ClientError::new(&self.endpoint, &status))?;
        self.ended = event.as_ref().is_none_or(is_final);
        Ok(event)
    }
}

impl EventSource {
    async fn next(&mut self) -> Result<Option<Event>, Status> {
        match self {
            Self::Execute(stream) => loop {
                match stream.message().await?.map(|message| message.body) {
                    Some(Some(execute_response::Body::Event(event))) => return Ok(Some(event)),
                    // Nothing else follows the acceptance in this version of the protocol.
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
            Self::Results(stream) => Ok(stream.message().await?.and_then(|message| message.event)),
        }
    }
}

fn is_final(event: &Event) -> bool {
    match &event.body {
        Some(Body::Complete(_) | Body::Error(_) | Body::Cancelled(_) | Body::Rejected(_)) => true,
        Some(Body::Session(_) | Body::Message(_) | Body::Retrying(_) | Body::Gap(_)) | None => false,
    }
}

/// The events of the pool, until the server stops.
#[derive(Debug)]
pub struct PoolWatchStream {
    endpoint: Endpoint,
    stream: Streaming<proto::WatchEventsResponse>,
}

impl PoolWatchStream {
    pub(super) fn new(endpoint: Endpoint, stream: Streaming<proto::WatchEventsResponse>) -> Self {
        Self { endpoint, stream }
    }

    /// The next event; `None` if the server has stopped. May be dropped and called again without losing an event.
    pub async fn next(&mut self) -> Result<Option<proto::PoolEvent>, ClientError> {
        let response = self.stream.message().await.map_err(|status| ClientError::new(&self.endpoint, &status))?;
        Ok(response.map(|response| response.event.unwrap_or_default()))
    }
}
