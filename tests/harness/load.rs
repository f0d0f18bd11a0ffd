//! Clients that keep a server busy.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinHandle, time::timeout};

use super::{DEADLINE, Server, query};

/// Clients that run one query after the other, each of which must succeed.
pub(crate) struct Load {
    enough: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Value>>>,
}

impl Load {
    /// Returns once each client has had an answer.
    pub(crate) async fn start(server: &Server, clients: usize, payload: &Value) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(Semaphore::new(0));
        let mut running = Vec::new();
        for _ in 0..clients {
            let (enough, answered) = (enough.clone(), answered.clone());
            let (payload, mut client) = (payload.clone(), server.client().await);
            running.push(tokio::spawn(async move {
                let mut results = Vec::new();
                while !enough.load(Relaxed) {
                    results.push(client.execute(query(&payload)).await.result());
                    if results.len() == 1 {
                        answered.add_permits(1);
                    }
                }
                results
            }));
        }
        let all = u32::try_from(clients).expect("a few clients");
        let _ = timeout(DEADLINE, answered.acquire_many(all)).await.expect("every client gets an answer");
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
