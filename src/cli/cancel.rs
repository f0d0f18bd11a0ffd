//! `remuda cancel`, and the words for what a cancel found.

use super::{
    args::CancelArgs,
    exit::{Exit, Failure},
    json::{self, Cancelled},
    output, words,
};
use crate::{
    api::proto::{CancelFound, CancelRequest, CancelResponse},
    client::{Client, Endpoint},
};

pub(super) async fn cancel(server: &Endpoint, args: CancelArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let query_id = args.id.to_string();
    let request = CancelRequest { query_id: query_id.clone(), reason: args.reason.unwrap_or_default() };
    let response = client.cancel(request).await?;
    if args.json {
        output::line(&json::line(&Cancelled::from(&response)))?;
    } else {
        output::text(&format!("{}\n", found(&query_id, response)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn found(query_id: &str, response: CancelResponse) -> String {
    match response.found() {
        CancelFound::Queued => format!("query {query_id} is cancelled; no worker had it yet"),
        CancelFound::Running => format!("query {query_id} is cancelled; its worker has been told to stop"),
        CancelFound::Cancelling => format!("query {query_id} was being cancelled already"),
        CancelFound::Ended => {
            format!("query {query_id} had ended already: {}", words::query_state(response.state))
        }
        CancelFound::Unspecified => format!("query {query_id} is {}", words::query_state(response.state)),
    }
}
