//! The workers of a server: their number, the one that served a query, the certificate of one that ended.

use std::{
    fs,
    path::{Path, PathBuf},
};

use remuda::api::proto::{DeathCause, DeathCertificate, Query};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Client, Ended, Server, eventually, eventually_async, query};

impl Server {
    /// Number of workers of a kind in this state.
    pub(crate) fn workers_in(&self, kind: &str, state: &str) -> usize {
        self.metric(&format!("remuda_workers{{kind=\"{kind}\",state=\"{state}\"}}")) as usize
    }

    /// Number of workers of a kind in service.
    pub(crate) fn in_service(&self, kind: &str) -> usize {
        let (_, text) = self.get("/metrics");
        let states = ["ready", "processing", "idle"];
        let series = states.map(|state| format!("remuda_workers{{kind=\"{kind}\",state=\"{state}\"}} "));
        let counts = text.lines().filter_map(|line| series.iter().find_map(|series| line.strip_prefix(series)));
        counts.map(|count| count.parse::<usize>().unwrap()).sum()
    }

    /// Number of workers of a kind that ended for this cause.
    pub(crate) fn exits(&self, kind: &str, cause: &str) -> usize {
        self.metric(&format!("remuda_worker_exits_total{{cause=\"{cause}\",kind=\"{kind}\"}}")) as usize
    }

    /// All causes for which workers of a kind have ended, and how many for each.
    pub(crate) fn all_exits(&self, kind: &str) -> Vec<(String, usize)> {
        let (_, text) = self.get("/metrics");
        let exits = text.lines().filter_map(|line| line.strip_prefix("remuda_worker_exits_total{cause=\""));
        let parse = |line: &str| {
            let (cause, rest) = line.split_once('"')?;
            let count = rest.strip_prefix(&format!(",kind=\"{kind}\"}} "))?.parse().ok()?;
            (count > 0).then(|| (cause.to_owned(), count))
        };
        exits.filter_map(parse).collect()
    }

    #[track_caller]
    pub(crate) fn until_ready(&self, kind: &str, count: usize) {
        eventually("workers to be ready", || (self.workers_in(kind, "ready") == count).then_some(()));
    }

    #[track_caller]
    pub(crate) fn until_busy(&self, kind: &str, count: usize) {
        eventually("workers to be busy", || (self.workers_in(kind, "processing") == count).then_some(()));
    }

    #[track_caller]
    pub(crate) fn until_waiting(&self, kind: &str, count: usize) {
        let series = format!("remuda_queue_depth{{kind=\"{kind}\"}}");
        eventually("queries to wait", || (self.metric(&series) as usize == count).then_some(()));
    }
}

impl Client {
    /// Runs a query beside what else is done.
    pub(crate) fn begin(&self, query: Query) -> JoinHandle<Ended> {
        let mut client = self.clone();
        tokio::spawn(async move { client.execute(query).await })
    }

    /// Runs a query that tells which worker runs it.
    pub(crate) async fn served_by(&mut self, about: Query) -> u64 {
        let ended = self.execute(Query { payload: query(&json!({"steps": ["nonce"]})).payload, ..about }).await;
        ended.result()["worker"].as_u64().expect("a worker's id")
    }

    /// Waits for a worker's end.
    pub(crate) async fn certificate_of(&self, worker: u64) -> DeathCertificate {
        eventually_async("the worker to end", || {
            let mut client = self.clone();
            async move { client.worker(worker).await.certificate }
        })
        .await
    }

    pub(crate) async fn cause_of(&self, worker: u64) -> DeathCause {
        self.certificate_of(worker).await.cause()
    }
}

/// A file that queries wait for.
pub(crate) struct Gate {
    _dir: TempDir,
    path: PathBuf,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("open");
        Self { _dir: dir, path }
    }

    pub(crate) fn open(&self) {
        fs::write(&self.path, "").unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A payload: waits until the gate is open, then says which worker ran it.
    pub(crate) fn payload(&self) -> Value {
        json!({"steps": [{"message": "begun"}, {"await_file": self.path}, "nonce"]})
    }

    pub(crate) fn query(&self) -> Query {
        query(&self.payload())
    }
}
