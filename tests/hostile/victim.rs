//! A server under attack, and its state before.

use std::{fs, time::Instant};

use remuda::api::proto::Query;
use serde_json::json;

use crate::harness::{Client, DEADLINE, Server, eventually, fake_kind, query};

/// Growth of the server that remains afterwards: buffers that the allocator keeps, not what the clients sent.
pub(crate) const KEPT_BYTES: u64 = 24 << 20;

/// A server with its memory and descriptors before anyone harmed it.
pub(crate) struct Victim {
    pub server: Server,
    pub client: Client,
    memory: u64,
    descriptors: usize,
}

impl Victim {
    /// `limits` are lines of `[server]`, `rest` is whatever else.
    pub(crate) async fn start(limits: &str, rest: &str) -> Self {
        let doors = "listen = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"";
        let kind = fake_kind("k", &[], "min = 2\nmax = 2");
        let server = Server::start(&format!("[server]\n{doors}\n{limits}\n{rest}\n{kind}"));
        server.until_ready("k", 2);
        let mut client = server.client().await;
        for _ in 0..31 {
            run_query(&mut client).await;
        }
        let (memory, descriptors) = (resident(server.pid()), open_descriptors(server.pid()));
        Self { server, client, memory, descriptors }
    }

    /// Others are served, on a connection that is there and on a new one.
    pub(crate) async fn serves_others(&mut self) {
        for _ in 0..5 {
            run_query(&mut self.client).await;
        }
        run_query(&mut self.server.client().await).await;
        assert_eq!(self.server.get("/livez").0, 200);
    }

    /// The same again and again, until it is enough.
    pub(crate) async fn serves_others_until(&mut self, mut enough: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        self.serves_others().await;
        while !enough(self) {
            assert!(Instant::now() < deadline, "it is not enough after {DEADLINE:?}");
            self.serves_others().await;
        }
    }

    /// Descriptors that it has more than before.
    pub(crate) fn more_descriptors(&self) -> usize {
        open_descriptors(self.server.pid()).saturating_sub(self.descriptors)
    }

    /// Bytes that it has more than before.
    pub(crate) fn grown(&self) -> u64 {
        resident(self.server.pid()).saturating_sub(self.memory)
    }

    /// All is as it was, and the server stops as it should.
    pub(crate) async fn recovers(mut self) {
        self.serves_others().await;
        eventually("descriptors to be closed", || (self.more_descriptors() < 16).then_some(()));
        eventually("memory to be given back", || (self.grown() < KEPT_BYTES).then_some(()));
        drop(self.client);
        assert_eq!(self.server.stop_cleanly().code(), Some(0));
    }
}

pub(crate) fn normal() -> Query {
    query(&json!("a normal query"))
}

pub(crate) async fn run_query(client: &mut Client) {
    assert_eq!(client.execute(normal()).await.result(), json!({"echo": "a normal query"}));
}

pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

pub(crate) fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the server lives").count()
}
