//! `remuda cancel`, and the texts for the results of a cancel.

use super::{
    args::CancelArgs,
    exit::{CliError, CliExit},
    format, json, output,
};
use crate::{
    api::proto::{CancelFound, CancelRequest, CancelResponse},
    client::{Client, Endpoint},
};

pub(super) async fn cancel(server: &Endpoint, args: CancelArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let query_id = args.id.to_string();
    let request = CancelRequest { query_id: query_id.clone(), reason: args.reason.unwrap_or_default() };
    let response = client.call(client.pool().cancel(request)).await?;
    output::answer(args.json, || json::cancelled(response), || describe(&query_id, response) + "\n")
}

pub(super) fn describe(query_id: &str, response: CancelResponse) -> String {
    let state = format::query_state(response.state);
    match response.found() {
        CancelFound::Queued => format!("query {query_id} is cancelled; no worker had it yet"),
        CancelFound::Running => format!("query {query_id} is cancelled; its worker has been told to stop"),
        CancelFound::Cancelling => format!("query {query_id} was being cancelled already"),
        CancelFound::Ended => format!("query {query_id} had ended already: {state}"),
        CancelFound::Unspecified => format!("query {query_id} is {state}"),
    }
}
