//! Runs one round of load: concurrent loops, each of which runs one query after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    select,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    progress::Progress,
    round::{Round, RoundCounts},
};
use crate::{
    api::proto::Query,
    client::{Client, ClientError, Endpoint, LoadCaller},
};

/// Delay after a failure, so that a server that is gone is not called in a busy loop.
const FAILURE_DELAY: Duration = Duration::from_millis(10);
/// Time for running queries to end after an interrupt.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// The load of every round.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    pub query: Query,
    pub concurrency: usize,
    /// Queries that take longer count as hung.
    pub timeout: Duration,
    pub call: LoadCall,
}

/// The call that a query is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadCall {
    /// Runs the query to its end.
    Execute,
    /// Ends when the query is accepted.
    Submit,
}

/// The length of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundLength {
    /// No query begins after this time.
    Duration(Duration),
    Queries(u64),
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct LoadTarget {
    connections: Vec<Client>,
}

/// State that the loops of a round share.
struct RoundState {
    timeout: Duration,
    until: Option<Instant>,
    /// Queries that have not begun.
    left: AtomicU64,
    stopped: AtomicBool,
    progress: Arc<Progress>,
}

impl LoadTarget {
    pub(super) async fn connect(endpoint: &Endpoint, connections: usize) -> Result<Self, ClientError> {
        let mut opened = Vec::with_capacity(connections);
        for _ in 0..connections.max(1) {
            opened.push(Client::connect(endpoint).await?);
        }
        Ok(Self { connections: opened })
    }

    /// Runs one round, or a part of it if `stop` is cancelled meanwhile.
    pub(super) async fn run(
        &self,
        load: &LoadSpec,
        length: RoundLength,
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Round {
        let begun = Instant::now();
        let (until, left) = match length {
            RoundLength::Duration(duration) => (begun.checked_add(duration), u64::MAX),
            RoundLength::Queries(count) => (None, count),
        };
        let shared = Arc::new(RoundState {
            timeout: load.timeout,
            until,
            left: AtomicU64::new(left),
            stopped: AtomicBool::new(false),
            progress: progress.clone(),
        });
        let parts: Vec<_> = self.connections.iter().map(|_| Arc::new(Mutex::new(RoundCounts::new()))).collect();
        let mut loops = JoinSet::new();
        for (connection, counts) in self.connections.iter().zip(&parts).cycle().take(load.concurrency) {
            let query = load.query.clone();
            let caller = match load.call {
                LoadCall::Execute => connection.execute_caller(query),
                LoadCall::Submit => connection.submit_caller(query),
            };
            loops.spawn(shared.clone().run(caller, counts.clone()));
        }
        finish(&mut loops, &shared, stop).await;
        let took = begun.elapsed();
        let mut counts = RoundCounts::new();
        for part in &parts {
            counts.add(&part.lock());
        }
        Round { counts, took, killed: 0 }
    }
}

/// Waits for all loops. After a stop, loops that do not end soon are aborted; their last queries are not counted.
async fn finish(loops: &mut JoinSet<()>, shared: &RoundState, stop: &CancellationToken) {
    let all = async |loops: &mut JoinSet<()>| while loops.join_next().await.is_some() {};
    select! {
        () = all(loops) => return,
        () = stop.cancelled() => shared.stopped.store(true, Ordering::Relaxed),
    }
    let _ = timeout(INTERRUPT_GRACE, all(loops)).await;
    loops.shutdown().await;
}

impl RoundState {
    async fn run(self: Arc<Self>, mut caller: LoadCaller, counts: Arc<Mutex<RoundCounts>>) {
        while let Some(begun) = self.next() {
            match timeout(self.timeout, caller.call()).await {
                Ok(Ok(stats)) => {
                    let first_message = stats.first_message.map(|at| at - begun);
                    counts.lock().record_completed(stats.messages, begun.elapsed(), first_message);
                }
                Ok(Err(failure)) => {
                    counts.lock().record_failure(failure);
                    sleep(FAILURE_DELAY).await;
                }
                Err(_) => counts.lock().hung += 1,
            }
            self.progress.record_ended();
        }
    }

    /// Start time of the next query, if the round is not over.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        if self.stopped.load(Ordering::Relaxed) || self.until.is_some_and(|until| now >= until) {
            return None;
        }
        let take = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| now)
    }
}
