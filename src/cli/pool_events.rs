//! `remuda events`: the events of the pool, a line each, as they happen.

use std::{io, time::Duration};

use anstyle::Style;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::interval,
};

use super::{
    args::EventsArgs,
    exit::{CliError, CliExit},
    format, json,
    output::{self, BAD, BOLD, BUSY, GOOD, printable},
};
use crate::{
    api::proto::{PoolEvent, WatchEventsRequest, WorkerMoved, pool_event::Body},
    client::{Client, Endpoint},
};

/// Interval of checks that the output still has a reader.
const READER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn events(server: &Endpoint, args: EventsArgs) -> Result<CliExit, CliError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::system)?;
    let client = Client::connect(server).await?;
    let mut events = client.watch_events(WatchEventsRequest { kinds: args.kind, names: args.name }).await?;
    let mut columns = EventColumns::default();
    let watching = async {
        while let Some(event) = events.next().await? {
            output::answer(args.json, || json::pool_event(&event), || columns.render(&event))?;
        }
        output::note("the server has stopped");
        Ok(CliExit::Done)
    };
    select! {
        ended = watching => ended,
        _ = interrupt.recv() => Ok(CliExit::Done),
        () = output_closed() => Ok(CliExit::Done),
    }
}

/// Resolves once the reader closes the pipe; a write would notice that only with the next event.
async fn output_closed() {
    let mut checks = interval(READER_CHECK_INTERVAL);
    loop {
        checks.tick().await;
        let stdout = io::stdout();
        let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
        if poll(&mut pipe, Some(&Timespec::default())).is_ok() && pipe[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}

/// Widths of the columns so far; later lines are aligned with them.
#[derive(Debug)]
pub(super) struct EventColumns {
    name: usize,
    kind: usize,
    worker: usize,
}

impl Default for EventColumns {
    fn default() -> Self {
        Self { name: 15, kind: 10, worker: 9 }
    }
}

impl EventColumns {
    /// One line: time, name, kind, worker and reason.
    pub(super) fn render(&mut self, event: &PoolEvent) -> String {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { printable(text).into_owned() };
        let name = printable(&event.name);
        let kind = or_dash(&event.kind);
        let worker = or_dash(&worker(event.body.as_ref()).map(|id| format!("worker {id}")).unwrap_or_default());
        for (width, text) in [(&mut self.name, &*name), (&mut self.kind, &*kind), (&mut self.worker, &*worker)] {
            *width = text.chars().count().max(*width);
        }
        let style = style(event.body.as_ref());
        let reason = printable(&reason(event.body.as_ref())).replace(['\n', '\t'], " ");
        let at = format::time(event.at.as_ref());
        let Self { name: a, kind: b, worker: c } = *self;
        let line = format!("{at}  {style}{name:<a$}{style:#}  {kind:<b$}  {worker:<c$}  {reason}");
        format!("{}\n", line.trim_end())
    }
}

fn style(body: Option<&Body>) -> Style {
    match body {
        Some(Body::WorkerMoved(moved)) => format::worker_style(moved.to),
        Some(Body::Scaled(_) | Body::Reloaded(_)) => GOOD,
        Some(Body::Evicted(_) | Body::Circuit(_)) => BUSY,
        Some(Body::Missed(_)) => BAD,
        Some(Body::WorkerEnded(_) | Body::Pool(_)) | None => BOLD,
    }
}

fn worker(body: Option<&Body>) -> Option<u64> {
    match body? {
        Body::WorkerMoved(moved) => Some(moved.worker_id),
        Body::WorkerEnded(ended) => ended.certificate.as_ref().map(|end| end.worker_id),
        Body::Evicted(evicted) => Some(evicted.worker_id),
        Body::Scaled(_) | Body::Circuit(_) | Body::Pool(_) | Body::Reloaded(_) | Body::Missed(_) => None,
    }
}

fn reason(body: Option<&Body>) -> String {
    match body {
        Some(Body::WorkerMoved(moved)) => moved_reason(moved),
        Some(Body::WorkerEnded(ended)) => ended.certificate.as_ref().map(|end| end.summary.clone()).unwrap_or_default(),
        Some(Body::Scaled(scaled)) => format!("{} -> {}: {}", scaled.from, scaled.to, scaled.reason),
        Some(Body::Evicted(evicted)) => format!("{}: {}", evicted.strategy, evicted.reason),
        Some(Body::Circuit(circuit)) => format!("{}: {}", format::circuit_state(circuit.state), circuit.reason),
        Some(Body::Pool(pool)) => pool.reason.clone(),
        Some(Body::Reloaded(reloaded)) => reloaded.changes.join("; "),
        Some(Body::Missed(missed)) => {
            format!("{} missed: they came faster than they were read", format::plural(missed.count, "event", "events"))
        }
        // A later server may send events that this command does not know.
        None => String::new(),
    }
}

fn moved_reason(moved: &WorkerMoved) -> String {
    let about = [("query", &moved.query_id), ("key", &moved.key)].into_iter();
    let about: Vec<_> = about.filter(|(_, id)| !id.is_empty()).map(|(what, id)| format!("{what} {id}")).collect();
    if about.is_empty() {
        return moved.reason.clone();
    }
    format!("{} ({})", moved.reason, about.join(", "))
}
