//! Clients that keep a server busy.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use serde_json::Value;
use tokio::task::JoinHandle;

use super::{Server, query};

/// Clients that run one query after the other, each of which must succeed.
pub(crate) struct Load {
    enough: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Value>>>,
}

impl Load {
    pub(crate) async fn start(server: &Server, clients: usize, payload: &Value) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let mut running = Vec::new();
        for _ in 0..clients {
            let (enough, payload, mut client) = (enough.clone(), payload.clone(), server.client().await);
            running.push(tokio::spawn(async move {
                let mut results = Vec::new();
                while !enough.load(Relaxed) {
                    results.push(client.execute(query(&payload)).await.result());
                }
                results
            }));
        }
        Self { enough, clients: running }
    }

    /// Ends it and gives the results of all queries, those of each client in order.
    pub(crate) async fn stop(self) -> Vec<Vec<Value>> {
        self.enough.store(true, Relaxed);
        let mut results = Vec::new();
        for client in self.clients {
            results.push(client.await.expect("every query succeeds"));
        }
        results
    }
}
