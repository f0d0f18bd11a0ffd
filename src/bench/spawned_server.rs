//! A server with echo workers, started for one run and stopped after it.

use std::{
    ffi::OsStr,
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{BenchError, process::Started, temp_dir::TempDir};
use crate::{
    api::proto::{HealthRequest, WorkerState},
    client::{Client, Endpoint},
};

/// What a start may take, and how much longer for each worker.
const START: Duration = Duration::from_secs(30);
const START_OF_EACH: Duration = Duration::from_millis(100);
/// Between two looks at the workers.
const LOOK: Duration = Duration::from_millis(10);
/// What a stop may take; with no query left it is a matter of milliseconds.
const STOP: Duration = Duration::from_secs(15);
/// Everything that goes wrong, and where the server listens.
const LOG: &str = "warn,remuda::server=info";

#[derive(Debug)]
pub struct SpawnedServer {
    // Dropped in this order: the server's files go after it.
    process: Started,
    _files: TempDir,
    endpoint: Endpoint,
}

/// A line of the server's log.
#[derive(Deserialize)]
struct Line {
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    grpc: Option<String>,
}

impl SpawnedServer {
    /// Starts `program` as a server with its files below `place`, and waits until all workers are ready.
    pub async fn start(program: &Path, place: &Path, workers: u32) -> Result<Self, BenchError> {
        let files = TempDir::new(place)?;
        let config = files.path().join("remuda.toml");
        fs::write(&config, configuration(program, files.path(), workers))?;
        let arguments: [&OsStr; 7] = [
            "serve".as_ref(),
            "--config".as_ref(),
            config.as_ref(),
            "--log".as_ref(),
            LOG.as_ref(),
            "--log-format".as_ref(),
            "json".as_ref(),
        ];
        let mut process = Started::new(program, &arguments, &[])?;
        let patience = START + START_OF_EACH * workers;
        let endpoint = listening(&mut process, patience).await?;
        let server = Self { process, _files: files, endpoint };
        server.wait_for(workers, patience).await?;
        Ok(server)
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub async fn stop(self) {
        self.process.stop(STOP).await;
    }

    async fn wait_for(&self, workers: u32, patience: Duration) -> Result<(), BenchError> {
        let client = Client::connect(&self.endpoint).await?;
        let deadline = Instant::now() + patience;
        loop {
            let health = client.health(HealthRequest::default()).await?;
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
            sleep(LOOK).await;
        }
    }
}

/// Waits until the server says where it listens. Its log is read for as long as it lives, or it would have to wait.
async fn listening(process: &mut Started, patience: Duration) -> Result<Endpoint, BenchError> {
    let (sender, receiver) = oneshot::channel();
    let log = process.log();
    thread::Builder::new().name("server-log".to_owned()).spawn(move || {
        let mut sender = Some(sender);
        let mut last = "it ended without a word".to_owned();
        for text in log {
            match serde_json::from_str::<Line>(&text) {
                Ok(Line { fields: Fields { grpc: Some(address), .. } }) => {
                    sender.take().map(|sender| sender.send(Ok(address)));
                }
                Ok(line) => last = line.fields.message,
                Err(_) => last = text,
            }
        }
        sender.take().map(|sender| sender.send(Err(last)))
    })?;
    let late = |_| BenchError::SpawnedServer("it did not say in time where it listens".to_owned());
    let address = timeout(patience, receiver).await.map_err(late)?.map_err(io::Error::other)?;
    let address = address.map_err(BenchError::SpawnedServer)?;
    address.parse().map_err(|error| BenchError::SpawnedServer(format!("it listens on {address}: {error}")))
}

/// All as it is shipped, but for retries: what a killed worker was running is run again.
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
