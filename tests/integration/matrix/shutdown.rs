//! Lets all workers misbehave in a server that stops: under their last query, or when they are told to go.

use std::{
    fs,
    net::TcpStream,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::sys::signal::Signal;
use remuda::api::proto::{CancelFound, CancelRequest, CancelResponse, DeathCause, Event, StreamResultsRequest};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

use crate::harness::{Client, DEADLINE, Server, eventually, eventually_async, group_of, raw};

use super::{
    aftermath::cause_name,
    provoke::all_ready,
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
    let mut readings = Vec::new();
    for id in &ids {
        readings.push(Reading::begin(&mut client, id).await);
    }
    let workers = client.workers().await;
    // It answers no ping, so that the server cannot know whether it has heard of the drain.
    let unaware = raw::connect(&server.grpc, &[]);
    assert!(raw::next_frame(&unaware).is_some(), "the server greets");
    server.signal(Signal::SIGTERM);
    // Until then late calls are taken, and workers that die are replaced.
    server.logs("\"draining\"");
    fs::write(signs.gate(), "").unwrap();
    cancel_in_vain(&unaware, &rows, &ids, &readings).await;
    for (row, reading) in rows.iter().zip(readings) {
        query::check_provoking(row, &reading.end().await);
    }
    let cut_short = rows.iter().any(|row| row.cell == Cell::CutShort);
    let status = server.wait_within(if cut_short { LONGEST_STOP } else { DEADLINE });
    assert_eq!(status.code(), Some(i32::from(cut_short)), "it tells whether a query was cut short");
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

/// A query's events as they come. The stream is opened before the drain, which takes no new connections.
struct Reading {
    events: Arc<Mutex<Vec<Event>>>,
    task: JoinHandle<()>,
}

impl Reading {
    async fn begin(client: &mut Client, id: &str) -> Self {
        let request = StreamResultsRequest { query_id: id.to_owned(), from_sequence: 0 };
        let mut stream = client.pool.stream_results(request).await.expect("the query is known").into_inner();
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let task = tokio::spawn({
            let events = events.clone();
            async move {
                while let Some(response) = stream.message().await.expect("the stream goes on") {
                    events.lock().unwrap().push(response.event.expect("a response has an event"));
                }
            }
        });
        Self { events, task }
    }

    fn len(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    async fn end(self) -> Vec<Event> {
        timeout(DEADLINE, self.task).await.expect("every query ends").unwrap();
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

/// Cancels the queries that are to be cancelled, once their workers do not listen any more.
async fn cancel_in_vain(unaware: &TcpStream, rows: &[Row], ids: &[String], readings: &[Reading]) {
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.cell == Cell::Cancelled) {
        // Its session comes after its messages, and tells that.
        let told = scripts::messages_per_attempt(row.phase) + 1;
        let is_deaf = || std::future::ready((readings[at].len() >= told).then_some(()));
        eventually_async("the worker to be deaf", is_deaf).await;
        let request = CancelRequest { query_id: ids[at].clone(), reason: "enough".to_owned() };
        let stream_id = 2 * u32::try_from(at).unwrap() + 1;
        let answer: Option<CancelResponse> = raw::unary(unaware, stream_id, "/remuda.v1.WorkerPool/Cancel", &request);
        assert_eq!(answer.expect("a drain takes cancels").found(), CancelFound::Running, "{row:?}");
    }
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
