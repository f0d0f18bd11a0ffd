//! `remuda workers`: a table of the workers, or the details of one.

use std::fmt::Write;

use super::{
    args::WorkersArgs,
    exit::{CliError, CliExit},
    format, json,
    list::{ListPrinter, PAGE_SIZE_MAX},
    output::{self, BOLD, printable},
    table::{Cell, Table, properties},
};
use crate::{
    api::proto::{
        DeathCertificate, GetWorkerRequest, GetWorkerResponse, ListWorkersRequest, ResourceSample, Worker, WorkerState,
        WorkerTransition,
    },
    client::{Client, Endpoint},
};

/// Samples shown to people; JSON has all of them.
const SAMPLES_SHOWN: usize = 5;

pub(super) async fn workers(server: &Endpoint, args: WorkersArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    if let Some(worker_id) = args.id {
        let response = client.call(client.admin().get_worker(GetWorkerRequest { worker_id })).await?;
        return output::answer(args.json, || json::worker_details(&response), || render_details(&response));
    }
    let kind = args.kind.unwrap_or_default();
    let list = ListPrinter {
        json: args.json,
        limit: None,
        page_size: PAGE_SIZE_MAX,
        to_json: json::worker,
        table: table(),
        to_row: row,
        empty_note: "there is no worker",
    };
    list.print(async |page_size, page_token| {
        let request = ListWorkersRequest { kind: kind.clone(), page_size, page_token };
        let page = client.call(client.admin().list_workers(request)).await?;
        Ok((page.workers, page.next_page_token))
    })
    .await
}

pub(super) fn table() -> Table {
    Table::new(&["ID", "KIND", "STATE", "PID", "UPTIME", "QUERIES", "RSS", "CPU%", "QUERY"], "><<>>>>><")
}

pub(super) fn row(worker: &Worker) -> Vec<Cell> {
    let kind = match worker.key.as_str() {
        "" => worker.kind.clone(),
        key => format!("{} [{key}]", worker.kind),
    };
    vec![
        worker.worker_id.into(),
        kind.into(),
        Cell::styled(state(worker), format::worker_style(worker.state)),
        format::nonzero(worker.pid).into(),
        format::short_duration(format::duration(worker.uptime.as_ref())).into(),
        worker.queries_processed.into(),
        format::size(worker.rss_bytes).into(),
        format::cpu(worker.cpu_percent, worker.rss_bytes).into(),
        Cell::from(&worker.query_id),
    ]
}

/// State as `ready`, or `ready (drained)`.
fn state(worker: &Worker) -> String {
    let state = format::worker_state(worker.state);
    if worker.drained { state + " (drained)" } else { state }
}

pub(super) fn render_details(response: &GetWorkerResponse) -> String {
    let mut text = response.worker.as_ref().map(worker).unwrap_or_default();
    if !response.samples.is_empty() {
        let _ = write!(text, "\n{}", last_samples(&response.samples));
    }
    if !response.history.is_empty() {
        let _ = write!(text, "\n{}", history(&response.history));
    }
    if let Some(end) = &response.certificate {
        let _ = write!(text, "\n{}", certificate(end));
    }
    text
}

fn worker(worker: &Worker) -> String {
    let percent = |cpu: String| if cpu.is_empty() { cpu } else { cpu + "%" };
    let lives = worker.state() != WorkerState::Dead;
    let last_heard = format::duration(worker.last_heard.as_ref()).filter(|_| lives);
    let last_heard = last_heard.map(|ago| format::short_duration(Some(ago)) + " ago");
    properties(&[
        ("worker", worker.worker_id.to_string()),
        ("kind", worker.kind.clone()),
        ("key", worker.key.clone()),
        ("state", state(worker)),
        ("pid", format::nonzero(worker.pid)),
        ("query", worker.query_id.clone()),
        ("queries", worker.queries_processed.to_string()),
        ("started", format::time(worker.started_at.as_ref())),
        ("uptime", format::short_duration(format::duration(worker.uptime.as_ref()))),
        ("last heard", last_heard.unwrap_or_default()),
        ("reserved", format::size(worker.reserved_memory_bytes)),
        ("rss", format::size(worker.rss_bytes)),
        ("peak rss", format::size(worker.peak_rss_bytes)),
        ("cpu", percent(format::cpu(worker.cpu_percent, worker.rss_bytes))),
        ("name", worker.name.clone()),
        ("version", worker.version.clone()),
        ("capabilities", worker.capabilities.join(", ")),
    ])
}

fn last_samples(samples: &[ResourceSample]) -> String {
    let mut table = Table::new(&["AT", "RSS", "CPU%"], "<>>");
    for sample in &samples[samples.len().saturating_sub(SAMPLES_SHOWN)..] {
        table.row([
            format::time(sample.at.as_ref()).into(),
            format::size(sample.rss_bytes).into(),
            format::cpu(sample.cpu_percent, sample.rss_bytes).into(),
        ]);
    }
    table.render()
}

fn history(transitions: &[WorkerTransition]) -> String {
    let mut table = Table::new(&["AT", "FROM", "TO", "REASON"], "<<<<");
    for transition in transitions {
        table.row([
            format::time(transition.at.as_ref()).into(),
            format::worker_state(transition.from).into(),
            Cell::styled(format::worker_state(transition.to), format::worker_style(transition.to)),
            Cell::from(&transition.reason),
        ]);
    }
    table.render()
}

fn certificate(end: &DeathCertificate) -> String {
    let exit_code = end.exit_code.map(|code| code.to_string()).unwrap_or_default();
    let mut text = properties(&[
        ("ended", format::time(end.at.as_ref())),
        ("cause", format::death_cause(end.cause)),
        ("exit code", exit_code),
        ("signal", end.signal.clone()),
        ("query", end.query_id.clone()),
        ("uptime", format::short_duration(format::duration(end.uptime.as_ref()))),
        ("queries", end.queries_processed.to_string()),
        ("peak rss", format::size(end.peak_rss_bytes)),
        ("summary", end.summary.clone()),
    ]);
    text.push_str(&stderr_tail(&end.stderr_tail, ""));
    text
}

/// The end of a worker's standard error, if it wrote anything, each line indented.
pub(super) fn stderr_tail(tail: &str, indent: &str) -> String {
    if tail.is_empty() {
        return String::new();
    }
    let mut text = format!("{indent}{BOLD}the end of its standard error:{BOLD:#}\n");
    for line in tail.lines() {
        let _ = writeln!(text, "{indent}  {}", printable(line));
    }
    text
}
