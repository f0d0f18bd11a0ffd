//! `remuda health`: the health of the pool and of its kinds.

use std::{fmt::Write, time::Duration};

use tokio::time::timeout;

use super::{
    args::HealthArgs,
    exit::{CliError, CliExit},
    format, json,
    output::{self, BAD, BOLD, GOOD, printable},
    table::{Cell, Table},
};
use crate::{
    api::proto::{HealthRequest, HealthResponse, KindHealth},
    client::{Client, ClientError, Endpoint},
};

pub(super) async fn health(server: &Endpoint, args: HealthArgs) -> Result<CliExit, CliError> {
    let health = fetch(server, args.kind.unwrap_or_default(), args.timeout).await.map_err(CliError::from);
    if args.quiet {
        return Ok(health.map_or_else(|error| error.exit(), |health| exit(&health)));
    }
    let health = health?;
    output::answer(args.json, || json::health(&health), || render(&health))?;
    Ok(exit(&health))
}

/// A server that accepts the connection but does not answer in time counts as unreachable.
async fn fetch(server: &Endpoint, kind: String, limit: Duration) -> Result<HealthResponse, ClientError> {
    let fetching = async {
        let client = Client::connect(server).await?;
        client.call(client.pool().health(HealthRequest { kind })).await
    };
    timeout(limit, fetching).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} (--timeout)", humantime::format_duration(limit));
        Err(ClientError::Unreachable { endpoint: server.to_string(), message })
    })
}

fn exit(health: &HealthResponse) -> CliExit {
    if health.serving { CliExit::Done } else { CliExit::Failed }
}

pub(super) fn render(health: &HealthResponse) -> String {
    let (style, serving) = if health.serving { (GOOD, "serving") } else { (BAD, "not serving") };
    let waiting = format::plural(health.queries_waiting, "query", "queries");
    let mut text = format!(
        "{style}{serving}{style:#}: {}, {}; {waiting} waiting; remuda {}, up {}\n",
        printable(&health.lifecycle),
        printable(&health.occupancy),
        printable(&health.version),
        format::short_duration(format::duration(health.uptime.as_ref())),
    );
    for reason in &health.reasons {
        let _ = writeln!(text, "  {}", printable(reason));
    }
    let _ = write!(text, "\n{}", kinds(&health.kinds));
    for (kind, end) in health.kinds.iter().filter_map(|kind| Some((&kind.kind, kind.last_failure.as_ref()?))) {
        let (kind, at) = (printable(kind), format::time(end.at.as_ref()));
        let _ = write!(text, "\n{BOLD}last failure of {kind}{BOLD:#}, at {at}:\n  {}\n", printable(&end.summary));
    }
    text
}

fn kinds(kinds: &[KindHealth]) -> String {
    let mut table = Table::new(&["KIND", "SERVING", "MIN", "MAX", "WAITING", "WORKERS"], "<<>>><");
    for kind in kinds {
        let serving = if kind.serving { Cell::styled("yes", GOOD) } else { Cell::styled("no", BAD) };
        table.row([
            Cell::from(&kind.kind),
            serving,
            kind.min.into(),
            kind.max.into(),
            kind.queries_waiting.into(),
            workers(kind).into(),
        ]);
    }
    table.render()
}

/// Workers by state, as `2 ready, 1 processing`.
fn workers(kind: &KindHealth) -> String {
    let counts = kind.workers.iter().map(|count| format!("{} {}", count.count, format::worker_state(count.state)));
    let counts: Vec<_> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
