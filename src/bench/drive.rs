//! Drives one round of load: so many loops, each running one query after the other.

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
    round::{Round, Tally},
};
use crate::{
    api::proto::Query,
    client::{Caller, Client, ClientError, Endpoint},
};

/// After a failure: a server that is gone would else be asked a million times.
const PAUSE: Duration = Duration::from_millis(10);
/// How long queries may go on after someone has lost patience.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What every round is made of.
#[derive(Debug, Clone)]
pub struct Load {
    pub query: Query,
    /// Queries at a time.
    pub concurrency: usize,
    /// A query that takes longer counts as hung.
    pub timeout: Duration,
    pub call: Call,
}

/// How a query is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Runs it to its end.
    Execute,
    /// Has it accepted, no more.
    Submit,
}

/// How long a round goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// No query is begun after this.
    For(Duration),
    /// So many queries.
    Count(u64),
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Target {
    connections: Vec<Client>,
}

/// What the loops of a round share.
struct Shared {
    timeout: Duration,
    until: Option<Instant>,
    /// Queries yet to be begun.
    left: AtomicU64,
    stopped: AtomicBool,
    progress: Arc<Progress>,
}

impl Target {
    pub(super) async fn connect(endpoint: &Endpoint, connections: usize) -> Result<Self, ClientError> {
        let mut opened = Vec::with_capacity(connections);
        for _ in 0..connections.max(1) {
            opened.push(Client::connect(endpoint).await?);
        }
        Ok(Self { connections: opened })
    }

    /// Runs one round, or as much of it as there is time for until `stop`.
    pub(super) async fn drive(
        &self,
        load: &Load,
        extent: Extent,
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Round {
        let begun = Instant::now();
        let (until, left) = match extent {
            Extent::For(duration) => (begun.checked_add(duration), u64::MAX),
            Extent::Count(count) => (None, count),
        };
        let shared = Arc::new(Shared {
            timeout: load.timeout,
            until,
            left: AtomicU64::new(left),
            stopped: AtomicBool::new(false),
            progress: progress.clone(),
        });
        let tallies: Vec<_> = self.connections.iter().map(|_| Arc::new(Mutex::new(Tally::new()))).collect();
        let mut loops = JoinSet::new();
        for (connection, tally) in self.connections.iter().zip(&tallies).cycle().take(load.concurrency) {
            let query = load.query.clone();
            let caller = match load.call {
                Call::Execute => connection.executing(query),
                Call::Submit => connection.submitting(query),
            };
            loops.spawn(shared.clone().run(caller, tally.clone()));
        }
        finish(&mut loops, &shared, stop).await;
        let took = begun.elapsed();
        let mut tally = Tally::new();
        for part in &tallies {
            tally.add(&part.lock());
        }
        Round { tally, took }
    }
}

/// Waits for all loops. After a stop, those that do not end soon are ended; their last queries count as never begun.
async fn finish(loops: &mut JoinSet<()>, shared: &Shared, stop: &CancellationToken) {
    let all = async |loops: &mut JoinSet<()>| while loops.join_next().await.is_some() {};
    select! {
        () = all(loops) => return,
        () = stop.cancelled() => shared.stopped.store(true, Ordering::Relaxed),
    }
    let _ = timeout(LAST_WAIT, all(loops)).await;
    loops.shutdown().await;
}

impl Shared {
    async fn run(self: Arc<Self>, mut caller: Caller, tally: Arc<Mutex<Tally>>) {
        while let Some(begun) = self.next() {
            match timeout(self.timeout, caller.call()).await {
                Ok(Ok(heard)) => {
                    let first = heard.first_message.map(|at| at - begun);
                    tally.lock().completed(heard.messages, begun.elapsed(), first);
                }
                Ok(Err(failed)) => {
                    tally.lock().failed(failed);
                    sleep(PAUSE).await;
                }
                Err(_) => tally.lock().hung += 1,
            }
            self.progress.one_more();
        }
    }

    /// When the next query begins, if there is to be one.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        if self.stopped.load(Ordering::Relaxed) || self.until.is_some_and(|until| now >= until) {
            return None;
        }
        let take = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| now)
    }
}
