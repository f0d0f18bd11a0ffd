//! `remuda stream`: a query's events, printed as they come.

use super::{
    args::StreamArgs,
    event::{self, Show},
    exit::{Exit, Failure},
};
use crate::{
    api::proto::StreamResultsRequest,
    client::{Client, ClientError, Endpoint, EventStream},
};

pub(super) async fn stream(server: &Endpoint, args: StreamArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let query_id = args.id.to_string();
    let request = StreamResultsRequest { query_id: query_id.clone(), from_sequence: args.from };
    let events = client.stream_results(request).await?;
    Reading { query_id, show: Show::of(args.events), next: args.from }.finish(events).await
}

/// Reading the events of one query.
pub(super) struct Reading {
    pub query_id: String,
    pub show: Show,
    /// The sequence number to go on from if the connection breaks.
    pub next: u64,
}

impl Reading {
    /// Prints every event, and tells how the query ended.
    pub(super) async fn finish(mut self, mut events: EventStream) -> Result<Exit, Failure> {
        let mut end = None;
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    self.next = event.sequence + 1;
                    end = event::print(&self.query_id, &event, self.show)?;
                }
                Ok(None) => return end.ok_or(Failure::NoEnd { query_id: self.query_id, next: self.next }),
                Err(error) => return Err(self.cut_off(error)),
            }
        }
    }

    fn cut_off(self, error: ClientError) -> Failure {
        match error {
            ClientError::Refused(_) => Failure::Call(error),
            ClientError::Unreachable { .. } | ClientError::Tls { .. } | ClientError::Lost { .. } => {
                Failure::CutOff { error, query_id: self.query_id, next: self.next }
            }
        }
    }
}
