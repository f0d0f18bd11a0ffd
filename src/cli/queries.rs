//! `remuda queries`: a table of the queries, or the details of one.

use std::time::SystemTime;

use prost_types::Timestamp;

use super::{
    args::QueriesArgs,
    exit::{CliError, CliExit},
    format, json,
    list::{ListPrinter, PAGE_SIZE_MAX},
    output,
    table::{Cell, Table, properties},
};
use crate::{
    api::proto::{GetQueryRequest, ListQueriesRequest, QueryInfo},
    client::{Client, Endpoint},
};

pub(super) async fn queries(server: &Endpoint, args: QueriesArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    if let Some(id) = &args.id {
        let response = client.call(client.admin().get_query(GetQueryRequest { query_id: id.to_string() })).await?;
        let query = response.query.unwrap_or_default();
        return output::answer(args.json, || json::query(&query), || render_details(&query));
    }
    let states: Vec<_> = args.state.into_iter().map(i32::from).collect();
    let kind = args.kind.unwrap_or_default();
    let now = SystemTime::now();
    let list = ListPrinter {
        json: args.json,
        limit: args.limit,
        page_size: PAGE_SIZE_MAX,
        to_json: json::query,
        table: table(),
        to_row: |query: &QueryInfo| row(query, now),
        empty_note: "there is no such query; ended queries are forgotten after a while",
    };
    list.print(async |page_size, page_token| {
        let request = ListQueriesRequest { states: states.clone(), kind: kind.clone(), page_size, page_token };
        let page = client.call(client.admin().list_queries(request)).await?;
        Ok((page.queries, page.next_page_token))
    })
    .await
}

pub(super) fn table() -> Table {
    Table::new(
        &["ID", "STATE", "KIND", "TYPE", "PRIO", "OWNER", "WORKER", "ATTEMPTS", "EVENTS", "WAITED", "RAN"],
        "<<<<><>>>>>",
    )
}

pub(super) fn row(query: &QueryInfo, now: SystemTime) -> Vec<Cell> {
    vec![
        Cell::from(&query.query_id),
        Cell::styled(format::query_state(query.state), format::query_style(query.state)),
        Cell::from(&query.kind),
        Cell::from(&query.r#type),
        query.priority.into(),
        Cell::from(&query.owner),
        format::nonzero(query.worker_id).into(),
        query.attempts.into(),
        query.next_sequence.into(),
        waited(query, now).into(),
        ran(query, now).into(),
    ]
}

pub(super) fn render_details(query: &QueryInfo) -> String {
    let now = SystemTime::now();
    let kept =
        if query.first_sequence == 0 { String::new() } else { format!(" (kept from {} on)", query.first_sequence) };
    properties(&[
        ("query", query.query_id.clone()),
        ("state", format::query_state(query.state)),
        ("kind", query.kind.clone()),
        ("type", query.r#type.clone()),
        ("priority", query.priority.to_string()),
        ("owner", query.owner.clone()),
        ("key", query.key.clone()),
        ("worker", format::nonzero(query.worker_id)),
        ("attempts", query.attempts.to_string()),
        ("events", format!("{}{kept}", query.next_sequence)),
        ("submitted", format::time(query.submitted_at.as_ref())),
        ("started", format::time(query.started_at.as_ref())),
        ("ended", format::time(query.ended_at.as_ref())),
        ("waited", waited(query, now)),
        ("ran", ran(query, now)),
        ("dead letter", if query.dead_letter { format!("remuda dead show {}", query.query_id) } else { String::new() }),
        ("requeued from", query.requeued_from.clone()),
        ("requeued as", query.requeued_as.clone()),
    ])
}

/// Time from submit to the first dispatch, or to the end of a query that had none, or until now.
fn waited(query: &QueryInfo, now: SystemTime) -> String {
    elapsed(query.submitted_at.as_ref(), query.started_at.as_ref().or(query.ended_at.as_ref()), now)
}

/// Time from the first dispatch to the end, or until now.
fn ran(query: &QueryInfo, now: SystemTime) -> String {
    elapsed(query.started_at.as_ref(), query.ended_at.as_ref(), now)
}

fn elapsed(from: Option<&Timestamp>, to: Option<&Timestamp>, now: SystemTime) -> String {
    let to = format::system_time(to).unwrap_or(now);
    format::short_duration(format::system_time(from).and_then(|from| to.duration_since(from).ok()))
}
