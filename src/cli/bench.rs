//! `remuda bench`: makes load, measures what becomes of it, and tells.

mod floor;
mod report;

use std::time::Duration;

use tokio::runtime;
use tokio_util::sync::CancellationToken;

use super::{
    args::{BenchArgs, BenchCommand, LoadArgs},
    exit::{Exit, Failure},
    json, output, payload,
    run::Interrupts,
};
use crate::{
    api::{client::Endpoint, proto::Query},
    bench::{self, Call, Extent, Figures, Load, Target},
};
use report::{Report, Settings};

const DURATION: Duration = Duration::from_secs(10);
const WARMUP: Duration = Duration::from_secs(1);

/// `server` is asked for only if there is one to talk to.
pub(super) fn bench(server: impl FnOnce() -> Result<Endpoint, Failure>, args: BenchArgs) -> Result<Exit, Failure> {
    match args.command {
        Some(BenchCommand::Floor(args)) => floor::floor(&args),
        None => {
            let plan = Plan::new(server()?, args.load)?;
            runtime(plan.threads).map_err(Failure::system)?.block_on(plan.run())
        }
    }
}

fn runtime(threads: usize) -> std::io::Result<runtime::Runtime> {
    match threads {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        _ => runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

/// What the arguments come to.
struct Plan {
    endpoint: Endpoint,
    load: Load,
    connections: usize,
    threads: usize,
    extent: Extent,
    rounds: u32,
    warmup: Duration,
    settings: Settings,
    json: bool,
}

impl Plan {
    fn new(endpoint: Endpoint, args: LoadArgs) -> Result<Self, Failure> {
        let extent = match args.count {
            Some(count) => Extent::Count(count),
            None => Extent::For(args.duration.unwrap_or(DURATION)),
        };
        let usual_warmup = if args.count.is_some() { Duration::ZERO } else { WARMUP };
        let (concurrency, rounds) = (args.concurrency as usize, args.rounds.unwrap_or(1));
        let connections = concurrency.min(args.connections as usize);
        let payload = query_payload(&args)?;
        let settings = Settings {
            endpoint: endpoint.to_string(),
            concurrency,
            connections,
            messages: args.payload.is_none().then_some(args.messages),
            size: args.payload.is_none().then_some(args.size),
            payload_size: payload.len(),
            rounds,
            duration_seconds: args.count.is_none().then(|| args.duration.unwrap_or(DURATION).as_secs_f64()),
            count: args.count,
            timeout_seconds: args.timeout.as_secs_f64(),
        };
        let query = Query { payload, kind: args.kind.unwrap_or_default(), ..Default::default() };
        let load = Load { query, concurrency, timeout: args.timeout, call: Call::Execute };
        let (threads, warmup) = (args.threads as usize, args.warmup.unwrap_or(usual_warmup));
        Ok(Self { endpoint, load, connections, threads, extent, rounds, warmup, settings, json: args.json })
    }

    async fn run(self) -> Result<Exit, Failure> {
        let stop = CancellationToken::new();
        let mut interrupts = Interrupts::listen().map_err(Failure::system)?;
        let _watching = tokio::spawn({
            let stop = stop.clone();
            async move {
                interrupts.next().await;
                stop.cancel();
            }
        });
        let target = Target::connect(&self.endpoint, self.connections).await?;
        if !self.warmup.is_zero() {
            target.drive(&self.load, Extent::For(self.warmup), &stop).await;
        }
        let mut rounds = Vec::new();
        while rounds.len() < self.rounds as usize && !stop.is_cancelled() {
            rounds.push(target.drive(&self.load, self.extent, &stop).await);
        }
        let report = Report { settings: self.settings, interrupted: stop.is_cancelled(), remuda: Figures::of(&rounds) };
        if self.json {
            output::line(&json::line(&report))?;
        } else {
            output::text(&report.render())?;
        }
        Ok(if report.remuda.all_complete() { Exit::Done } else { Exit::Failed })
    }
}

fn query_payload(args: &LoadArgs) -> Result<String, Failure> {
    if let Some(own) = &args.payload {
        return payload::read(own);
    }
    let bytes = usize::try_from(args.payload_size).unwrap_or(usize::MAX);
    bench::payload(args.messages, args.size, bytes)
        .map_err(|error| Failure::Usage(format!("--payload-size {bytes}: give {error}")))
}
