//! A server with echo workers, started for one run and stopped after it.

use std::{
    ffi::OsStr,
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tempfile::TempDir;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{BenchError, process::ChildProcess};
use crate::{
    api::proto::{HealthRequest, WorkerState},
    client::{Client, Endpoint},
};

/// Time limit of a start, plus the part for each worker.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_TIMEOUT_PER_WORKER: Duration = Duration::from_millis(100);
/// Interval of checks that the workers are ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit of a stop; without queries it takes milliseconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// All warnings, and the line with the server's address.
const LOG_FILTER: &str = "warn,remuda::server=info";

#[derive(Debug)]
pub struct SpawnedServer {
    // Dropped in this order: the server before its files.
    process: ChildProcess,
    _files: TempDir,
    endpoint: Endpoint,
}

/// A line of the server's log.
#[derive(Deserialize)]
struct LogLine {
    fields: LogFields,
}

#[derive(Deserialize)]
struct LogFields {
    message: String,
    grpc: Option<String>,
}

impl SpawnedServer {
    /// Starts `program` as a server with its files in `temp_dir`, and waits until all workers are ready.
    pub async fn start(program: &Path, temp_dir: &Path, workers: u32) -> Result<Self, BenchError> {
        let files = tempfile::tempdir_in(temp_dir)?;
        let config = files.path().join("remuda.toml");
        fs::write(&config, configuration(program, files.path(), workers))?;
        let arguments: [&OsStr; 7] = [
            "serve".as_ref(),
            "--config".as_ref(),
            config.as_ref(),
            "--log".as_ref(),
            LOG_FILTER.as_ref(),
            "--log-format".as_ref(),
            "json".as_ref(),
        ];
        let mut process = ChildProcess::start(program, &arguments, &[])?;
        let limit = START_TIMEOUT + START_TIMEOUT_PER_WORKER * workers;
        let endpoint = wait_for_address(&mut process, limit).await?;
        let server = Self { process, _files: files, endpoint };
        server.wait_for_workers(workers, limit).await?;
        Ok(server)
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub async fn stop(self) {
        self.process.stop(STOP_TIMEOUT).await;
    }

    async fn wait_for_workers(&self, workers: u32, limit: Duration) -> Result<(), BenchError> {
        let client = Client::connect(&self.endpoint).await?;
        let deadline = Instant::now() + limit;
        loop {
            let health = client.call(client.pool().health(HealthRequest::default())).await?;
            let counts = health.kinds.iter().flat_map(|kind| &kind.workers);
            let ready: u32 = counts
                .filter(|count| matches!(count.state(), WorkerState::Ready | WorkerState::Idle))
                .map(|count| count.count)
                .sum();
            if ready >= workers {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(BenchError::SpawnedServer(format!(
                    "only {ready} of {workers} workers became ready in time"
                )));
            }
            sleep(READY_POLL_INTERVAL).await;
        }
    }
}

/// Waits until the server logs its address. Its log is read for as long as it lives, so that the pipe never fills.
async fn wait_for_address(process: &mut ChildProcess, limit: Duration) -> Result<Endpoint, BenchError> {
    let (sender, receiver) = oneshot::channel();
    let log = process.stderr_lines();
    thread::Builder::new().name("server-log".to_owned()).spawn(move || {
        let mut sender = Some(sender);
        let mut last = "it ended without a message".to_owned();
        for text in log {
            match serde_json::from_str::<LogLine>(&text) {
                Ok(LogLine { fields: LogFields { grpc: Some(address), .. } }) => {
                    sender.take().map(|sender| sender.send(Ok(address)));
                }
                Ok(line) => last = line.fields.message,
                Err(_) => last = text,
            }
        }
        sender.take().map(|sender| sender.send(Err(last)))
    })?;
    let late = |_| BenchError::SpawnedServer("it did not log its address in time".to_owned());
    let address = timeout(limit, receiver).await.map_err(late)?.map_err(io::Error::other)?;
    let address = address.map_err(BenchError::SpawnedServer)?;
    address.parse().map_err(|error| BenchError::SpawnedServer(format!("it listens on {address}: {error}")))
}

/// The default settings, but with retries, so that the query of a killed worker runs again.
fn configuration(program: &Path, dir: &Path, workers: u32) -> String {
    let text = |path: &Path| toml::Value::from(path.display().to_string()).to_string();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"off\"\n\
         [pool]\nmax_workers = {workers}\nsocket_dir = {dir}\n\
         [recovery]\nstrategy = \"retry\"\nattempts = 3\n\
         [kinds.echo]\ncommand = [{program}, \"worker\", \"echo\"]\nmin = {workers}\nmax = {workers}\n",
        dir = text(dir),
        program = text(program),
    )
}
