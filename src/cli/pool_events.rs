//! `remuda events`: what happens in the pool, a line each, as it happens.

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
    exit::{Exit, Failure},
    json,
    output::{self, BAD, BOLD, BUSY, GOOD, printable},
    words,
};
use crate::{
    api::proto::{PoolEvent, WatchEventsRequest, WorkerMoved, pool_event::Body},
    client::{Client, Endpoint},
};

/// How soon it is noticed that nobody reads the output any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn events(server: &Endpoint, args: EventsArgs) -> Result<Exit, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::system)?;
    let client = Client::connect(server).await?;
    let mut events = client.watch_events(WatchEventsRequest { kinds: args.kind, names: args.name }).await?;
    let mut columns = Columns::default();
    let watching = async {
        while let Some(event) = events.next().await? {
            if args.json {
                output::line(&json::line(&json::PoolEvent::from(&event)))?;
            } else {
                output::text(&columns.render(&event))?;
            }
        }
        output::note("the server has stopped");
        Ok(Exit::Done)
    };
    select! {
        ended = watching => ended,
        _ = interrupt.recv() => Ok(Exit::Done),
        () = nobody_reads() => Ok(Exit::Done),
    }
}

/// Resolves once the other end of the pipe is closed, which a write would notice only with the next event.
async fn nobody_reads() {
    let mut looks = interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let stdout = io::stdout();
        let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
        if poll(&mut pipe, Some(&Timespec::default())).is_ok() && pipe[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}

/// The widths of what was printed so far: what comes later stands below it.
#[derive(Debug)]
pub(super) struct Columns {
    name: usize,
    kind: usize,
    worker: usize,
}

impl Default for Columns {
    fn default() -> Self {
        Self { name: 15, kind: 10, worker: 9 }
    }
}

impl Columns {
    /// One line: when, what, which kind, which worker, and why.
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
        let at = words::time(event.at.as_ref());
        let Self { name: a, kind: b, worker: c } = *self;
        let line = format!("{at}  {style}{name:<a$}{style:#}  {kind:<b$}  {worker:<c$}  {reason}");
        format!("{}\n", line.trim_end())
    }
}

fn style(body: Option<&Body>) -> Style {
    match body {
        Some(Body::WorkerMoved(moved)) => words::worker_style(moved.to),
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
        Some(Body::WorkerMoved(moved)) => why_moved(moved),
        Some(Body::WorkerEnded(ended)) => ended.certificate.as_ref().map(|end| end.summary.clone()).unwrap_or_default(),
        Some(Body::Scaled(scaled)) => format!("{} -> {}: {}", scaled.from, scaled.to, scaled.reason),
        Some(Body::Evicted(evicted)) => format!("{}: {}", evicted.strategy, evicted.reason),
        Some(Body::Circuit(circuit)) => format!("{}: {}", words::circuit_state(circuit.state), circuit.reason),
        Some(Body::Pool(pool)) => pool.reason.clone(),
        Some(Body::Reloaded(reloaded)) => reloaded.changes.join("; "),
        Some(Body::Missed(missed)) => {
            format!("{} missed: they came faster than they were read", words::count(missed.count, "event", "events"))
        }
        // A later server may tell what this command does not know.
        None => String::new(),
    }
}

fn why_moved(moved: &WorkerMoved) -> String {
    let about = [("query", &moved.query_id), ("key", &moved.key)].into_iter();
    let about: Vec<_> = about.filter(|(_, id)| !id.is_empty()).map(|(what, id)| format!("{what} {id}")).collect();
    if about.is_empty() {
        return moved.reason.clone();
    }
    format!("{} ({})", moved.reason, about.join(", "))
}
