//! `remuda bench`: runs the load generator and prints its report.

mod baseline;
mod progress_bar;
mod report;

use std::{env, io, sync::Arc, time::Duration};

use tokio::runtime;
use tokio_util::sync::CancellationToken;

use super::{
    args::{BenchArgs, BenchCommand, LoadArgs},
    exit::{CliError, CliExit},
    json, output, payload,
    run::Interrupts,
};
use crate::{
    api::proto::Query,
    bench::{
        self, BenchError, BenchRun, BenchSummary, CompareOptions, LoadCall, LoadSpec, Progress, RoundLength,
        SpawnedServer,
    },
    client::Endpoint,
};
use report::{BenchReport, BenchSettings};

const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const DEFAULT_WARMUP: Duration = Duration::from_secs(1);
/// Rounds of each subject with --compare or --chaos, for a median.
const DEFAULT_ROUNDS: u32 = 3;

/// `server` is called only if no server is spawned.
pub(super) fn bench(server: impl FnOnce() -> Result<Endpoint, CliError>, args: BenchArgs) -> Result<CliExit, CliError> {
    match args.command {
        Some(BenchCommand::Baseline(args)) => baseline::baseline(&args),
        None => {
            // Checked before any process is started.
            let payload = query_payload(&args.load)?;
            let threads = args.load.threads as usize;
            runtime(threads).map_err(CliError::system)?.block_on(run(server, args.load, payload))
        }
    }
}

fn runtime(threads: usize) -> io::Result<runtime::Runtime> {
    match threads {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        _ => runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

async fn run(
    server: impl FnOnce() -> Result<Endpoint, CliError>,
    args: LoadArgs,
    payload: String,
) -> Result<CliExit, CliError> {
    let stop = stop_on_interrupt().map_err(CliError::system)?;
    let spawned = match args.spawn {
        Some(workers) => {
            let program = env::current_exe().map_err(CliError::system)?;
            Some(SpawnedServer::start(&program, &env::temp_dir(), workers).await.map_err(cli_error)?)
        }
        None => None,
    };
    let endpoint = spawned.as_ref().map_or_else(server, |spawned| Ok(spawned.endpoint().clone()))?;
    let run = bench_run(endpoint, &args, payload)?;
    let summary = measure(&run, &stop).await;
    // A failed run stops the server gracefully too.
    if let Some(spawned) = spawned {
        spawned.stop().await;
    }
    let report = BenchReport { settings: BenchSettings::new(&run, &args), summary: summary.map_err(cli_error)? };
    output::answer(args.json, || json::to_json(&report), || report.render())?;
    Ok(if report.summary.all_complete() { CliExit::Done } else { CliExit::Failed })
}

async fn measure(run: &BenchRun, stop: &CancellationToken) -> Result<BenchSummary, BenchError> {
    let progress = Arc::new(Progress::default());
    let bar = progress_bar::show(progress.clone(), run.rounds);
    let results = run.run(&progress, stop).await;
    drop(bar);
    Ok(results?.summary())
}

/// The first Ctrl-C or SIGTERM ends the run; a second one changes nothing.
fn stop_on_interrupt() -> io::Result<CancellationToken> {
    let mut interrupts = Interrupts::listen()?;
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            interrupts.next().await;
            stop.cancel();
        }
    });
    Ok(stop)
}

fn bench_run(endpoint: Endpoint, args: &LoadArgs, payload: String) -> Result<BenchRun, CliError> {
    let duration = args.duration.unwrap_or(DEFAULT_DURATION);
    let default_warmup = if args.count.is_some() { Duration::ZERO } else { DEFAULT_WARMUP };
    let default_rounds = if args.compare || args.chaos.is_some() { DEFAULT_ROUNDS } else { 1 };
    let concurrency = args.concurrency as usize;
    let query = Query { payload, kind: args.kind.clone().unwrap_or_default(), ..Default::default() };
    let compare = if args.compare {
        let program = env::current_exe().map_err(CliError::system)?;
        Some(CompareOptions { messages: args.messages, program, temp_dir: env::temp_dir() })
    } else {
        None
    };
    Ok(BenchRun {
        endpoint,
        connections: concurrency.min(args.connections as usize),
        load: LoadSpec { query, concurrency, timeout: args.timeout, call: LoadCall::Execute },
        length: args.count.map_or(RoundLength::Duration(duration), RoundLength::Queries),
        rounds: args.rounds.unwrap_or(default_rounds),
        warmup: args.warmup.unwrap_or(default_warmup),
        compare,
        chaos: args.chaos,
    })
}

fn query_payload(args: &LoadArgs) -> Result<String, CliError> {
    if let Some(own) = &args.payload {
        return payload::read(own);
    }
    let bytes = usize::try_from(args.payload_size).unwrap_or(usize::MAX);
    bench::payload(args.messages, args.size, bytes)
        .map_err(|least| CliError::Usage(format!("--payload-size {bytes}: give at least {least} bytes")))
}

fn cli_error(error: BenchError) -> CliError {
    match error {
        BenchError::Call(error) => CliError::Call(error),
        BenchError::NoWorker | BenchError::NotLocal { .. } => CliError::Usage(format!("--chaos: {error}")),
        BenchError::SpawnedServer(_) => CliError::system(format!("--spawn: {error}")),
        BenchError::System(error) => CliError::system(error),
    }
}
