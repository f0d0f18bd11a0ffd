//! `remuda bench`: makes load, measures what becomes of it, and tells.

mod baseline;
mod progress_bar;
mod report;

use std::{env, io, sync::Arc, time::Duration};

use tokio::runtime;
use tokio_util::sync::CancellationToken;

use super::{
    args::{BenchArgs, BenchCommand, LoadArgs},
    exit::{Exit, Failure},
    json, output, payload,
    run::Interrupts,
};
use crate::{
    api::proto::Query,
    bench::{self, BenchError, Call, Compare, Extent, Load, Progress, Session, SpawnedServer, Summary},
    client::Endpoint,
};
use report::{Report, Settings};

const DURATION: Duration = Duration::from_secs(10);
const WARMUP: Duration = Duration::from_secs(1);
/// Of each, where the median of several is worth the time.
const ROUNDS: u32 = 3;

/// `server` is asked for only if there is one to talk to.
pub(super) fn bench(server: impl FnOnce() -> Result<Endpoint, Failure>, args: BenchArgs) -> Result<Exit, Failure> {
    match args.command {
        Some(BenchCommand::Baseline(args)) => baseline::baseline(&args),
        None => {
            // Checked before anything is started.
            let payload = query_payload(&args.load)?;
            let threads = args.load.threads as usize;
            runtime(threads).map_err(Failure::system)?.block_on(run(server, args.load, payload))
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
    server: impl FnOnce() -> Result<Endpoint, Failure>,
    args: LoadArgs,
    payload: String,
) -> Result<Exit, Failure> {
    let stop = stop_on_interrupt().map_err(Failure::system)?;
    let own = match args.spawn {
        Some(workers) => {
            let program = env::current_exe().map_err(Failure::system)?;
            Some(SpawnedServer::start(&program, &env::temp_dir(), workers).await.map_err(failure)?)
        }
        None => None,
    };
    let endpoint = own.as_ref().map_or_else(server, |own| Ok(own.endpoint().clone()))?;
    let session = session(endpoint, &args, payload)?;
    let measured = measure(&session, &stop).await;
    // However the run went, the server is stopped in order.
    if let Some(own) = own {
        own.stop().await;
    }
    let report = Report { settings: Settings::new(&session, &args), summary: measured.map_err(failure)? };
    if args.json {
        output::line(&json::line(&report))?;
    } else {
        output::text(&report.render())?;
    }
    Ok(if report.summary.all_complete() { Exit::Done } else { Exit::Failed })
}

async fn measure(session: &Session, stop: &CancellationToken) -> Result<Summary, BenchError> {
    let progress = Arc::new(Progress::default());
    let shown = progress_bar::show(progress.clone(), session.rounds);
    let results = session.run(&progress, stop).await;
    drop(shown);
    Ok(results?.summary())
}

/// The first Ctrl-C or SIGTERM ends the run; there is no hurry that a second one could add.
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

fn session(endpoint: Endpoint, args: &LoadArgs, payload: String) -> Result<Session, Failure> {
    let extent = args.count.map_or_else(|| Extent::For(args.duration.unwrap_or(DURATION)), Extent::Count);
    let usual_warmup = if args.count.is_some() { Duration::ZERO } else { WARMUP };
    let usual_rounds = if args.compare || args.chaos.is_some() { ROUNDS } else { 1 };
    let concurrency = args.concurrency as usize;
    let query = Query { payload, kind: args.kind.clone().unwrap_or_default(), ..Default::default() };
    let compare = if args.compare {
        let program = env::current_exe().map_err(Failure::system)?;
        Some(Compare { messages: args.messages, program, place: env::temp_dir() })
    } else {
        None
    };
    Ok(Session {
        endpoint,
        connections: concurrency.min(args.connections as usize),
        load: Load { query, concurrency, timeout: args.timeout, call: Call::Execute },
        extent,
        rounds: args.rounds.unwrap_or(usual_rounds),
        warmup: args.warmup.unwrap_or(usual_warmup),
        compare,
        chaos: args.chaos,
    })
}

fn query_payload(args: &LoadArgs) -> Result<String, Failure> {
    if let Some(own) = &args.payload {
        return payload::read(own);
    }
    let bytes = usize::try_from(args.payload_size).unwrap_or(usize::MAX);
    bench::payload(args.messages, args.size, bytes)
        .map_err(|error| Failure::Usage(format!("--payload-size {bytes}: give {error}")))
}

fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Call(error) => Failure::Call(error),
        BenchError::NoWorker | BenchError::Stranger { .. } => Failure::Usage(format!("--chaos: {error}")),
        BenchError::SpawnedServer(_) => Failure::system(format!("--spawn: {error}")),
        BenchError::System(error) => Failure::system(error),
    }
}
