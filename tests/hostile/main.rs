//! Clients that mean harm, over real sockets: the server stays up, serves everyone else meanwhile, and gives back what it
//! was made to take.
//!
//! These are a program of their own, because `cargo test` runs one after the other: waits can be compared only where
//! nothing else keeps the machine busy.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a failed test says where; metrics are small whole numbers"
)]

mod connections;
mod floods;
#[allow(dead_code, unused_imports, reason = "other tests use the rest")]
#[path = "../integration/harness/mod.rs"]
mod harness;
mod loris;
mod promise;
mod raw;
mod silence;
mod unread;

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use remuda::api::proto::Query;
use serde_json::json;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::harness::{Client, Server, eventually, fake_kind, query};

/// What the server may be larger by afterwards: buffers that the allocator keeps, not what the clients sent.
const KEPT: u64 = 24 << 20;

/// Most tests share the machine; some have it for themselves.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// A server with what it was like before anyone harmed it.
struct Victim {
    server: Server,
    client: Client,
    quiet: Duration,
    memory: u64,
    descriptors: usize,
    _place: Place,
}

/// Held for as long as a test lasts.
#[derive(Debug)]
enum Place {
    Shared(#[expect(dead_code, reason = "it is only held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "it is only held")] RwLockWriteGuard<'static, ()>),
}

impl Place {
    async fn shared() -> Self {
        Self::Shared(MACHINE.read().await)
    }

    async fn alone() -> Self {
        Self::Alone(MACHINE.write().await)
    }
}

impl Victim {
    /// `limits` are lines of `[server]`, `rest` is whatever else.
    async fn start(limits: &str, rest: &str) -> Self {
        Self::start_in(Place::shared().await, limits, rest).await
    }

    /// The same while no other test runs.
    async fn alone(limits: &str, rest: &str) -> Self {
        Self::start_in(Place::alone().await, limits, rest).await
    }

    async fn start_in(place: Place, limits: &str, rest: &str) -> Self {
        let doors = "listen = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"";
        let kind = fake_kind("k", &[], "min = 2\nmax = 2");
        let server = Server::start(&format!("[server]\n{doors}\n{limits}\n{rest}\n{kind}"));
        server.until_ready("k", 2);
        let mut client = server.client().await;
        median(&mut client).await;
        let quiet = median(&mut client).await;
        let (memory, descriptors) = (resident(server.pid()), open_descriptors(server.pid()));
        Self { server, client, quiet, memory, descriptors, _place: place }
    }

    /// Others are served, on a connection that is there and on a new one. Says how much longer they wait than before.
    async fn serves_others(&mut self, during: &str) {
        let ratio = self.slowed_down().await;
        tell(&format!("{during}: a query takes {ratio:.2} times what it took before"));
    }

    /// The same again and again, until it is enough.
    async fn serves_others_until(&mut self, during: &str, mut enough: impl FnMut(&Self) -> bool) {
        let mut slowest = self.slowed_down().await;
        while !enough(self) {
            slowest = slowest.max(self.slowed_down().await);
        }
        tell(&format!("{during}: a query takes {slowest:.2} times what it took before, at worst"));
    }

    async fn slowed_down(&mut self) -> f64 {
        let now = median(&mut self.client).await;
        let mut newcomer = self.server.client().await;
        assert_eq!(newcomer.execute(normal()).await.result(), json!({"echo": "a normal query"}));
        assert_eq!(self.server.get("/livez").0, 200);
        now.as_secs_f64() / self.quiet.as_secs_f64()
    }

    /// How many descriptors it has more than before.
    fn more_descriptors(&self) -> usize {
        open_descriptors(self.server.pid()).saturating_sub(self.descriptors)
    }

    /// How many bytes it has more than before.
    fn grown(&self) -> u64 {
        resident(self.server.pid()).saturating_sub(self.memory)
    }

    /// All is as it was, and the server stops as it should.
    async fn recovers(mut self, after: &str) {
        self.serves_others(&format!("after {after}")).await;
        eventually("descriptors to be closed", || (self.more_descriptors() < 16).then_some(()));
        eventually("memory to be given back", || (self.grown() < KEPT).then_some(()));
        tell(&format!("after {after}: {} KiB more than before", self.grown() >> 10));
        drop(self.client);
        assert_eq!(self.server.stop_cleanly().code(), Some(0));
    }
}

/// Figures for whoever runs the tests with `--nocapture`.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "HOSTILE {what}");
}

fn normal() -> Query {
    query(&json!("a normal query"))
}

/// The median time of some queries, each of which must be served.
async fn median(client: &mut Client) -> Duration {
    let mut times = Vec::new();
    for _ in 0..31 {
        times.push(one(client).await);
    }
    middle(&mut times)
}

/// The time of one query.
async fn one(client: &mut Client) -> Duration {
    let begun = Instant::now();
    assert_eq!(client.execute(normal()).await.result(), json!({"echo": "a normal query"}));
    begun.elapsed()
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the server lives").count()
}
