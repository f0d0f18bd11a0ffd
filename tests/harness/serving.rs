//! Queries that tell which worker runs them.

use remuda::api::proto::WorkerState;
use serde_json::{Value, json};

use super::{Client, eventually_async, query};

/// A payload whose result tells the worker.
pub(crate) fn tells_worker() -> Value {
    json!({"nonce": 1, "steps": ["nonce"]})
}

/// A payload that runs until the file is there; then its result tells the worker.
pub(crate) fn waits_for(file: &str) -> Value {
    json!({"nonce": 1, "steps": [{"message": "begun"}, {"await_file": file}, "nonce"]})
}

impl Client {
    /// Runs queries one after the other and gives the workers that ran them.
    pub(crate) async fn served(&mut self, queries: usize) -> Vec<u64> {
        let mut workers = Vec::new();
        for _ in 0..queries {
            workers.push(self.served_by(query(&tells_worker())).await);
        }
        workers
    }

    /// Submits a query that runs until the file is there, waits until it runs, and gives its id and its worker.
    pub(crate) async fn occupy(&mut self, file: &str) -> (String, u64) {
        let id = self.submit(query(&waits_for(file))).await.expect("the query is accepted");
        let worker = eventually_async("the query to run", || {
            let (mut client, id) = (self.clone(), id.clone());
            async move { client.workers().await.into_iter().find(|worker| worker.query_id == id) }
        })
        .await;
        (id, worker.worker_id)
    }

    /// Waits until just so many workers are there, and all of them are free.
    pub(crate) async fn all_free(&mut self, count: usize) -> Vec<u64> {
        let free = |state| matches!(state, WorkerState::Ready | WorkerState::Idle);
        eventually_async("all workers to be free", || {
            let mut client = self.clone();
            async move {
                let workers = client.workers().await;
                let all = workers.len() == count && workers.iter().all(|worker| free(worker.state()));
                all.then(|| workers.iter().map(|worker| worker.worker_id).collect())
            }
        })
        .await
    }
}
