//! The interface through which a worker reports to the pool that it belongs to.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::broker::{Lease, Output};

use super::{conclusion::Conclusion, pool_worker::PoolWorker};

/// The pool, as its workers see it.
#[async_trait]
pub trait Host: Send + Sync + fmt::Debug {
    /// The worker can take a query: it has just become ready, or its query is over.
    async fn ready(&self, worker: &Arc<PoolWorker>);

    /// The worker has sent the id of the session that its query belongs to.
    fn session(&self, worker: &Arc<PoolWorker>, session_id: &str);

    /// The worker is done with a query. The host decides how the query goes on.
    async fn conclude(&self, worker: &Arc<PoolWorker>, lease: Lease, outputs: Vec<Output>, conclusion: Conclusion);
}
