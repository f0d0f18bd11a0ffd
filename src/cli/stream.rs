//! `remuda stream`: prints the events of a query as they come.

use super::{
    args::StreamArgs,
    event::{self, EventView},
    exit::{CliError, CliExit},
};
use crate::{
    api::proto::StreamResultsRequest,
    client::{Client, ClientError, Endpoint, QueryEventStream},
};

pub(super) async fn stream(server: &Endpoint, args: StreamArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let query_id = args.id.to_string();
    let request = StreamResultsRequest { query_id: query_id.clone(), from_sequence: args.from };
    let events = client.stream_results(request).await?;
    EventPrinter { query_id, view: EventView::new(args.events), next: args.from }.print_all(events).await
}

/// Prints the events of one query.
pub(super) struct EventPrinter {
    pub query_id: String,
    pub view: EventView,
    /// Sequence number of the next event, to go on from if the connection breaks.
    pub next: u64,
}

impl EventPrinter {
    /// Prints every event; returns the exit code of the query.
    pub(super) async fn print_all(mut self, mut events: QueryEventStream) -> Result<CliExit, CliError> {
        let mut end = None;
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    self.next = event.sequence + 1;
                    end = event::print(&self.query_id, &event, self.view)?;
                }
                Ok(None) => return end.ok_or(CliError::NoEnd { query_id: self.query_id, next: self.next }),
                Err(error) => return Err(self.cut_off(error)),
            }
        }
    }

    fn cut_off(self, error: ClientError) -> CliError {
        match error {
            ClientError::Refused(_) => CliError::Call(error),
            error => CliError::CutOff { error, query_id: self.query_id, next: self.next },
        }
    }
}
