//! Lets all workers misbehave in a server that stops: under their last query, or when they are told to go.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use remuda::api::proto::{DeathCause, Event};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Client, Server, eventually, group_of};

use super::{
    aftermath::cause_name,
    provoke::{self, all_ready},
    query,
    scripts::{self, Signs},
    table::{Cell, Phase, Policy, Row},
};

/// The drain, the graces of those that must be made to go, and what a busy machine adds.
const LONGEST_STOP: Duration = Duration::from_millis(6_900);

pub(super) async fn all(phase: Phase, policy: Policy) {
    let rows = phase.rows(policy);
    let signs = Signs::new();
    let mut server = Server::start(&scripts::config(&rows, &signs));
    let mut client = server.client().await;
    all_ready(&client, rows.len()).await;
    let ids = start_queries(&mut client, &rows, &signs).await;
    let readings: Vec<_> = ids.iter().map(|id| read(&client, id)).collect();
    let workers = client.workers().await;
    let begun = Instant::now();
    server.signal(Signal::SIGTERM);
    eventually("the drain to begin", || (server.get("/readyz").0 == 503).then_some(()));
    fs::write(signs.gate(), "").unwrap();
    provoke::cancel_in_vain(&mut client, &rows, &ids).await;
    for (row, reading) in rows.iter().zip(readings) {
        query::check_provoking(row, &reading.await.unwrap());
    }
    let cut_short = rows.iter().any(|row| row.cell == Cell::CutShort);
    assert_eq!(server.wait().code(), Some(i32::from(cut_short)), "it tells whether a query was cut short");
    assert!(!cut_short || begun.elapsed() < LONGEST_STOP, "{:?}", begun.elapsed());
    for worker in workers {
        assert_eq!(group_of(worker.pid), Vec::<u32>::new(), "left of {worker:?}");
    }
    assert_eq!(server.leftovers(), Vec::<PathBuf>::new());
    for row in &rows {
        check_ends(row, &server);
    }
}

/// Starts one query of each row and returns once all of them run.
async fn start_queries(client: &mut Client, rows: &[Row], signs: &Signs) -> Vec<String> {
    let mut ids = Vec::new();
    for row in rows {
        ids.push(client.submit(query::provoking(row, &signs.gate())).await.expect("the query is accepted"));
    }
    for id in &ids {
        client.read(id, 0, 1).await.expect("the query is known");
    }
    ids
}

/// Reads a query's events on, because the server will not be there to be asked later.
fn read(client: &Client, id: &str) -> JoinHandle<Vec<Event>> {
    let (mut client, id) = (client.clone(), id.to_owned());
    tokio::spawn(async move { client.read(&id, 0, usize::MAX).await.expect("the query is known") })
}

/// The log tells one end for each worker. One that was told to go ended for that reason, whatever it did.
fn check_ends(row: &Row, server: &Server) {
    // A worker that died is replaced only if a query needs it.
    let told_to_go = (row.cell == Cell::Harmless || row.is_retried()).then_some(DeathCause::Shutdown);
    let expected: Vec<DeathCause> = row.cause().into_iter().chain(told_to_go).collect();
    let ends = eventually("the workers' ends in the log", || {
        let is_end = |fields: &Value| fields["kind"] == row.kind() && fields["cause"].is_string();
        let fields = server.log_lines().into_iter().map(|line| line["fields"].clone());
        Some(fields.filter(is_end).collect::<Vec<_>>()).filter(|ends| ends.len() >= expected.len())
    });
    let causes: Vec<&str> = ends.iter().filter_map(|end| end["cause"].as_str()).collect();
    let expected: Vec<String> = expected.into_iter().map(cause_name).collect();
    assert_eq!(causes, expected, "{row:?}: {ends:?}");
    if row.phase == Phase::DuringShutdown {
        let exit = match row.misbehaviour.own_exit().unwrap_or_else(|| row.misbehaviour.exit()) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, signal) => format!("was killed by {signal}"),
        };
        assert_eq!(ends[0]["exit"], json!(exit), "{row:?}");
    }
}
