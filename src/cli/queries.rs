//! `remuda queries`: the queries in a table, or all about one.

use std::time::SystemTime;

use super::{
    args::QueriesArgs,
    exit::{Exit, Failure},
    json, output,
    table::{Align, Cell, Table, properties},
    words,
};
use crate::{
    api::proto::{GetQueryRequest, ListQueriesRequest, QueryInfo, QueryState},
    client::{Client, Endpoint},
};

/// The most that the server gives at once.
const PAGE: usize = 1000;

pub(super) async fn queries(server: &Endpoint, args: QueriesArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    if let Some(id) = &args.id {
        let response = client.get_query(GetQueryRequest { query_id: id.to_string() }).await?;
        let query = response.query.unwrap_or_default();
        return print_one(&query, args.json);
    }
    let json = args.json;
    let mut queries = Vec::new();
    list(&client, args, |page| {
        if json {
            return page.iter().try_for_each(|query| output::line(&json::line(&json::Query::from(query))));
        }
        queries.extend(page);
        Ok(())
    })
    .await?;
    match (json, queries.is_empty()) {
        (true, _) => {}
        (false, true) => output::note("there is no such query; those that ended are forgotten after a while"),
        (false, false) => output::text(&render(&queries, SystemTime::now()))?,
    }
    Ok(Exit::Done)
}

fn print_one(query: &QueryInfo, json: bool) -> Result<Exit, Failure> {
    if json {
        output::line(&json::line(&json::Query::from(query)))?;
    } else {
        output::text(&render_one(query))?;
    }
    Ok(Exit::Done)
}

/// Follows the pages up to the limit.
async fn list(
    client: &Client,
    args: QueriesArgs,
    mut take: impl FnMut(Vec<QueryInfo>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let states = args.state.into_iter().map(|state| QueryState::from(state).into()).collect();
    let mut request = ListQueriesRequest { states, kind: args.kind.unwrap_or_default(), ..Default::default() };
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        request.page_size = u32::try_from(left.min(PAGE)).unwrap_or_default();
        let mut page = client.list_queries(request.clone()).await?;
        page.queries.truncate(left);
        left -= page.queries.len();
        take(page.queries)?;
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    Ok(())
}

pub(super) fn render(queries: &[QueryInfo], now: SystemTime) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("KIND", Align::Left),
        ("TYPE", Align::Left),
        ("PRIO", Align::Right),
        ("OWNER", Align::Left),
        ("WORKER", Align::Right),
        ("ATTEMPTS", Align::Right),
        ("EVENTS", Align::Right),
        ("WAITED", Align::Right),
        ("RAN", Align::Right),
    ]);
    for query in queries {
        table.row([
            Cell::from(&query.query_id),
            Cell::styled(words::query_state(query.state), words::query_style(query.state)),
            Cell::from(&query.kind),
            Cell::from(&query.r#type),
            Cell::from(query.priority),
            Cell::from(&query.owner),
            Cell::from(words::number(query.worker_id)),
            Cell::from(query.attempts),
            Cell::from(query.next_sequence),
            Cell::from(waited(query, now)),
            Cell::from(ran(query, now)),
        ]);
    }
    table.render()
}

pub(super) fn render_one(query: &QueryInfo) -> String {
    let now = SystemTime::now();
    let kept =
        if query.first_sequence == 0 { String::new() } else { format!(" (kept from {} on)", query.first_sequence) };
    properties(&[
        ("query", query.query_id.clone()),
        ("state", words::query_state(query.state)),
        ("kind", query.kind.clone()),
        ("type", query.r#type.clone()),
        ("priority", query.priority.to_string()),
        ("owner", query.owner.clone()),
        ("key", query.key.clone()),
        ("worker", words::number(query.worker_id)),
        ("attempts", query.attempts.to_string()),
        ("events", format!("{}{kept}", query.next_sequence)),
        ("submitted", words::time(query.submitted_at.as_ref())),
        ("started", words::time(query.started_at.as_ref())),
        ("ended", words::time(query.ended_at.as_ref())),
        ("waited", waited(query, now)),
        ("ran", ran(query, now)),
        ("dead letter", if query.dead_letter { format!("remuda dead show {}", query.query_id) } else { String::new() }),
        ("requeued from", query.requeued_from.clone()),
        ("requeued as", query.requeued_as.clone()),
    ])
}

/// From submit to the first dispatch, or to the end of a query that had none, or until now.
fn waited(query: &QueryInfo, now: SystemTime) -> String {
    let until = words::moment(query.started_at.as_ref()).or(words::moment(query.ended_at.as_ref())).unwrap_or(now);
    words::rough(words::moment(query.submitted_at.as_ref()).and_then(|from| until.duration_since(from).ok()))
}

/// From the first dispatch to the end, or until now.
fn ran(query: &QueryInfo, now: SystemTime) -> String {
    let until = words::moment(query.ended_at.as_ref()).unwrap_or(now);
    words::rough(words::moment(query.started_at.as_ref()).and_then(|from| until.duration_since(from).ok()))
}
