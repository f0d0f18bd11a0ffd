//! `remuda health`: whether queries can start, and why not.

use std::{fmt::Write, time::Duration};

use tokio::time::timeout;

use super::{
    args::HealthArgs,
    exit::{Exit, Failure},
    json::{self, Health},
    output::{self, BAD, BOLD, GOOD, printable},
    table::{Align, Cell, Table},
    words,
};
use crate::{
    api::proto::{HealthRequest, HealthResponse, KindHealth},
    client::{Client, ClientError, Endpoint},
};

pub(super) async fn health(server: &Endpoint, args: HealthArgs) -> Result<Exit, Failure> {
    let asked = ask(server, args.kind.unwrap_or_default(), args.timeout).await.map_err(Failure::from);
    if args.quiet {
        return Ok(asked.map_or_else(|failure| failure.exit(), |health| exit(&health)));
    }
    let health = asked?;
    if args.json {
        output::line(&json::line(&Health::from(&health)))?;
    } else {
        output::text(&render(&health))?;
    }
    Ok(exit(&health))
}

/// A server that accepts but does not answer is as good as none.
async fn ask(server: &Endpoint, kind: String, patience: Duration) -> Result<HealthResponse, ClientError> {
    let asking = async { Client::connect(server).await?.health(HealthRequest { kind }).await };
    timeout(patience, asking).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} (--timeout)", humantime::format_duration(patience));
        Err(ClientError::Unreachable { endpoint: server.to_string(), message })
    })
}

fn exit(health: &HealthResponse) -> Exit {
    if health.serving { Exit::Done } else { Exit::Failed }
}

pub(super) fn render(health: &HealthResponse) -> String {
    let (style, serving) = if health.serving { (GOOD, "serving") } else { (BAD, "not serving") };
    let waiting = words::count(health.queries_waiting, "query", "queries");
    let mut text = format!(
        "{style}{serving}{style:#}: {}, {}; {waiting} waiting; remuda {}, up {}\n",
        printable(&health.lifecycle),
        printable(&health.occupancy),
        printable(&health.version),
        words::rough(words::duration(health.uptime.as_ref())),
    );
    for reason in &health.reasons {
        let _ = writeln!(text, "  {}", printable(reason));
    }
    let _ = write!(text, "\n{}", kinds(&health.kinds));
    for (kind, end) in health.kinds.iter().filter_map(|kind| Some((&kind.kind, kind.last_failure.as_ref()?))) {
        let (kind, at) = (printable(kind), words::time(end.at.as_ref()));
        let _ = write!(text, "\n{BOLD}last failure of {kind}{BOLD:#}, at {at}:\n  {}\n", printable(&end.summary));
    }
    text
}

fn kinds(kinds: &[KindHealth]) -> String {
    let mut table = Table::new(&[
        ("KIND", Align::Left),
        ("SERVING", Align::Left),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("WAITING", Align::Right),
        ("WORKERS", Align::Left),
    ]);
    for kind in kinds {
        let serving = if kind.serving { Cell::styled("yes", GOOD) } else { Cell::styled("no", BAD) };
        table.row([
            Cell::from(&kind.kind),
            serving,
            Cell::from(kind.min),
            Cell::from(kind.max),
            Cell::from(kind.queries_waiting),
            Cell::from(workers(kind)),
        ]);
    }
    table.render()
}

/// As `2 ready, 1 processing`.
fn workers(kind: &KindHealth) -> String {
    let counts = kind.workers.iter().map(|count| format!("{} {}", count.count, words::worker_state(count.state)));
    let counts: Vec<_> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
