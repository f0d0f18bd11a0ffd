//! `remuda workers`: the workers in a table, or all about one.

use std::fmt::Write;

use super::{
    args::WorkersArgs,
    exit::{Exit, Failure},
    json::{self, WholeWorker},
    output::{self, BOLD, printable},
    table::{Align, Cell, Table, properties},
    words,
};
use crate::{
    api::proto::{
        DeathCertificate, GetWorkerRequest, GetWorkerResponse, ListWorkersRequest, ResourceSample, Worker, WorkerState,
        WorkerTransition,
    },
    client::{Client, Endpoint},
};

/// The most that the server gives at once.
const PAGE: u32 = 1000;
/// How many of the last samples a person wants to see; JSON has them all.
const SAMPLES: usize = 5;

pub(super) async fn workers(server: &Endpoint, args: WorkersArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    if let Some(worker_id) = args.id {
        let response = client.get_worker(GetWorkerRequest { worker_id }).await?;
        if args.json {
            output::line(&json::line(&WholeWorker::from(&response)))?;
        } else {
            output::text(&render_one(&response))?;
        }
        return Ok(Exit::Done);
    }
    let mut request = ListWorkersRequest { kind: args.kind.unwrap_or_default(), page_size: PAGE, ..Default::default() };
    let mut workers = Vec::new();
    loop {
        let page = client.list_workers(request.clone()).await?;
        if args.json {
            page.workers.iter().try_for_each(|worker| output::line(&json::line(&json::Worker::from(worker))))?;
        } else {
            workers.extend(page.workers);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    match (args.json, workers.is_empty()) {
        (true, _) => {}
        (false, true) => output::note("there is no worker"),
        (false, false) => output::text(&render(&workers))?,
    }
    Ok(Exit::Done)
}

pub(super) fn render(workers: &[Worker]) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Right),
        ("KIND", Align::Left),
        ("STATE", Align::Left),
        ("PID", Align::Right),
        ("UPTIME", Align::Right),
        ("QUERIES", Align::Right),
        ("RSS", Align::Right),
        ("CPU%", Align::Right),
        ("QUERY", Align::Left),
    ]);
    for worker in workers {
        table.row([
            Cell::from(worker.worker_id),
            Cell::from(bound(worker)),
            Cell::styled(state(worker), words::worker_style(worker.state)),
            Cell::from(words::number(worker.pid)),
            Cell::from(words::rough(words::duration(worker.uptime.as_ref()))),
            Cell::from(worker.queries_processed),
            Cell::from(words::size(worker.rss_bytes)),
            Cell::from(words::cpu(worker.cpu_percent, worker.rss_bytes)),
            Cell::from(&worker.query_id),
        ]);
    }
    table.render()
}

/// As `agent`, or `agent [repo-7]` for one that is bound to a key.
fn bound(worker: &Worker) -> String {
    match worker.key.as_str() {
        "" => worker.kind.clone(),
        key => format!("{} [{key}]", worker.kind),
    }
}

/// As `ready`, or `ready (drained)`.
fn state(worker: &Worker) -> String {
    let state = words::worker_state(worker.state);
    if worker.drained { state + " (drained)" } else { state }
}

pub(super) fn render_one(response: &GetWorkerResponse) -> String {
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
    let last_heard = words::duration(worker.last_heard.as_ref()).filter(|_| lives);
    let last_heard = last_heard.map(|ago| words::rough(Some(ago)) + " ago");
    properties(&[
        ("worker", worker.worker_id.to_string()),
        ("kind", worker.kind.clone()),
        ("key", worker.key.clone()),
        ("state", state(worker)),
        ("pid", words::number(worker.pid)),
        ("query", worker.query_id.clone()),
        ("queries", worker.queries_processed.to_string()),
        ("started", words::time(worker.started_at.as_ref())),
        ("uptime", words::rough(words::duration(worker.uptime.as_ref()))),
        ("last heard", last_heard.unwrap_or_default()),
        ("reserved", words::size(worker.reserved_memory_bytes)),
        ("rss", words::size(worker.rss_bytes)),
        ("peak rss", words::size(worker.peak_rss_bytes)),
        ("cpu", percent(words::cpu(worker.cpu_percent, worker.rss_bytes))),
        ("name", worker.name.clone()),
        ("version", worker.version.clone()),
        ("capabilities", worker.capabilities.join(", ")),
    ])
}

fn last_samples(samples: &[ResourceSample]) -> String {
    let mut table = Table::new(&[("AT", Align::Left), ("RSS", Align::Right), ("CPU%", Align::Right)]);
    for sample in &samples[samples.len().saturating_sub(SAMPLES)..] {
        table.row([
            Cell::from(words::time(sample.at.as_ref())),
            Cell::from(words::size(sample.rss_bytes)),
            Cell::from(words::cpu(sample.cpu_percent, sample.rss_bytes)),
        ]);
    }
    table.render()
}

fn history(steps: &[WorkerTransition]) -> String {
    let mut table =
        Table::new(&[("AT", Align::Left), ("FROM", Align::Left), ("TO", Align::Left), ("REASON", Align::Left)]);
    for step in steps {
        table.row([
            Cell::from(words::time(step.at.as_ref())),
            Cell::from(words::worker_state(step.from)),
            Cell::styled(words::worker_state(step.to), words::worker_style(step.to)),
            Cell::from(&step.reason),
        ]);
    }
    table.render()
}

fn certificate(end: &DeathCertificate) -> String {
    let exit_code = end.exit_code.map(|code| code.to_string()).unwrap_or_default();
    let mut text = properties(&[
        ("ended", words::time(end.at.as_ref())),
        ("cause", words::death_cause(end.cause)),
        ("exit code", exit_code),
        ("signal", end.signal.clone()),
        ("query", end.query_id.clone()),
        ("uptime", words::rough(words::duration(end.uptime.as_ref()))),
        ("queries", end.queries_processed.to_string()),
        ("peak rss", words::size(end.peak_rss_bytes)),
        ("summary", end.summary.clone()),
    ]);
    text.push_str(&last_words(&end.stderr_tail, ""));
    text
}

/// The end of a worker's standard error, if it wrote anything, each line indented.
pub(super) fn last_words(stderr_tail: &str, indent: &str) -> String {
    if stderr_tail.is_empty() {
        return String::new();
    }
    let mut text = format!("{indent}{BOLD}the end of its standard error:{BOLD:#}\n");
    for line in stderr_tail.lines() {
        let _ = writeln!(text, "{indent}  {}", printable(line));
    }
    text
}
