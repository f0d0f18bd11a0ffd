//! Measures the added latency of other clients while the server is under attack: `cargo bench --bench hostile`.
//!
//! Rounds without the attack, while it begins and while it lasts take turns, and their medians are compared. The attackers share
//! the machine with the server and the client that is measured, and nothing makes up for the processors that they use.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark prints its figures, and ends where it fails"
)]

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod harness;
#[allow(dead_code, reason = "the tests use the rest")]
mod hostile {
    pub(crate) mod attacks;
    pub(crate) mod victim;
}

use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use tonic::transport::Channel;

use crate::{
    harness::{
        Client, DEADLINE, eventually,
        raw::{self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS},
    },
    hostile::attacks::{EXECUTE, MAX_CONNECTIONS, ask_for_all, connections_to_open, much_to_read, reset_flood},
    hostile::victim::{Victim, normal, run_query},
};

const ROUNDS: usize = 5;
/// Others are watched for this long each time.
const ROUND_TIME: Duration = Duration::from_millis(300);

/// An attack as its attackers see it.
#[derive(Debug)]
struct Attack {
    grpc: String,
    http: String,
    under_way: AtomicBool,
    over: AtomicBool,
}

impl Attack {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Called when all that is done at first has been done.
    fn mark_under_way(&self) {
        self.under_way.store(true, Relaxed);
    }

    /// Takes the step again and again until the attack is over.
    fn repeat(&self, mut step: impl FnMut()) {
        while !self.is_over() {
            step();
            self.mark_under_way();
        }
    }

    /// Keeps what is there until the attack is over.
    fn lasts(&self) {
        self.repeat(|| thread::sleep(Duration::from_millis(5)));
    }
}

/// Waits of others: of a client that is connected for a query, and of a new one for a connection and a query.
#[derive(Debug, Clone, Copy)]
struct Waits {
    old: Duration,
    new: Duration,
}

/// Waits with an attack, or without.
#[derive(Debug, Default)]
struct Measured {
    old: Vec<Duration>,
    new: Vec<Duration>,
}

impl Measured {
    fn push(&mut self, waits: Waits) {
        self.old.push(waits.old);
        self.new.push(waits.new);
    }

    fn middle(&mut self) -> Waits {
        Waits { old: middle(&mut self.old), new: middle(&mut self.new) }
    }

    /// The same in units of the usual wait.
    fn times(&mut self, usual: Waits) -> Times {
        let now = self.middle();
        let times = |now: Duration, usual: Duration| now.as_secs_f64() / usual.as_secs_f64();
        Times { old: times(now.old, usual.old), new: times(now.new, usual.new) }
    }
}

#[derive(Debug, Clone, Copy)]
struct Times {
    old: f64,
    new: f64,
}

impl Victim {
    /// Compares how long others wait without the attack, while it begins, and while it lasts.
    async fn measure(mut self, during: &str, attack: impl Fn(&Attack) + Send + Sync + 'static) {
        let [mut without, mut begins, mut lasts] = [(); 3].map(|()| Measured::default());
        let attack = Arc::new(attack);
        let mut turned_away = 0;
        for _ in 0..ROUNDS {
            without.push(self.wait(&mut turned_away).await);
            let (begin, last) = self.while_attacked(attack.clone(), &mut turned_away).await;
            begins.push(begin);
            lasts.push(last);
            eventually("the attackers to be gone", || (self.more_descriptors() < 8).then_some(()));
        }
        let usual = without.middle();
        let (first, later) = (begins.times(usual), lasts.times(usual));
        println!(
            "{during:45} {:>6.2} {:>6.2}   {:>6.2} {:>6.2}   {:>8.0?} {:>8.0?} {turned_away:>6}",
            first.old, later.old, first.new, later.new, usual.old, usual.new
        );
        self.recovers().await;
    }

    /// The waits of others now: the medians of as many queries as there is time for.
    async fn wait(&mut self, turned_away: &mut usize) -> Waits {
        let begun = Instant::now();
        let mut measured = Measured::default();
        while begun.elapsed() < ROUND_TIME || measured.old.len() < 31 {
            let begun = Instant::now();
            run_query(&mut self.client).await;
            let old = begun.elapsed();
            measured.push(Waits { old, new: self.new_client(turned_away).await });
        }
        measured.middle()
    }

    /// The time to connect and run a query. A client that is turned away comes again at once.
    async fn new_client(&self, turned_away: &mut usize) -> Duration {
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            let channel = Channel::from_shared(format!("http://{}", self.server.grpc)).unwrap();
            if let Ok(channel) = channel.connect_timeout(DEADLINE).connect().await
                && let Ok(ended) = Client::over(channel).execute_as("", normal()).await
                && ended.status.is_none()
            {
                assert_eq!(ended.result(), json!({"echo": "a normal query"}));
                return begun.elapsed();
            }
            *turned_away += 1;
        }
        panic!("a new client is not served");
    }

    /// The waits of others while the attack begins, and while it lasts.
    async fn while_attacked(
        &mut self,
        attack: Arc<impl Fn(&Attack) + Send + Sync + 'static>,
        turned_away: &mut usize,
    ) -> (Waits, Waits) {
        let (grpc, http) = (self.server.grpc.clone(), self.server.http.clone());
        let now = Arc::new(Attack { grpc, http, under_way: AtomicBool::new(false), over: AtomicBool::new(false) });
        let attacker = thread::spawn({
            let now = now.clone();
            move || attack(&now)
        });
        let begin = self.wait(turned_away).await;
        eventually("the attack to be under way", || now.under_way.load(Relaxed).then_some(()));
        let last = self.wait(turned_away).await;
        now.over.store(true, Relaxed);
        attacker.join().expect("the attacker is alive");
        (begin, last)
    }
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    println!("{:45} {:>13}   {:>13}   {:>17} {:>6}", "", "old client", "new client", "usual wait", "turned");
    println!(
        "{:45} {:>6} {:>6}   {:>6} {:>6}   {:>8} {:>8} {:>6}",
        "times the usual wait", "begins", "lasts", "begins", "lasts", "old", "new", "away"
    );
    connections_left_open().await;
    calls_reset_at_once().await;
    announced_gibibytes().await;
    mebibytes_of_metadata().await;
    bytes_one_by_one().await;
    unread_streams().await;
}

async fn connections_left_open() {
    let victim = Victim::start(&format!("max_connections = {MAX_CONNECTIONS}"), "").await;
    let count = connections_to_open();
    let leave_open = move |attack: &Attack| {
        let _left: Vec<_> = (0..count).map(|_| TcpStream::connect(&attack.grpc).unwrap()).collect();
        attack.lasts();
    };
    victim.measure("10,000 connections left open", leave_open).await;
}

async fn calls_reset_at_once() {
    let victim = Victim::start("", "").await;
    // Once beforehand, so that the frames are made by then.
    reset_flood(&victim.server.grpc);
    let flood = |attack: &Attack| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| attack.repeat(|| _ = reset_flood(&attack.grpc)));
            }
        });
    };
    victim.measure("4 clients that reset calls at once", flood).await;
}

async fn announced_gibibytes() {
    let victim = Victim::start("", "").await;
    let announce = |attack: &Attack| {
        let call = raw::call(EXECUTE);
        let message = [&[0], &(1_u32 << 30).to_be_bytes()[..], &[b'x'; 16_000]].concat();
        attack.repeat(|| {
            let mut stream = raw::connect(&attack.grpc, &[]);
            for id in (1..200).step_by(2) {
                stream.write_all(&raw::frame(HEADERS, END_HEADERS, id, &call)).unwrap();
                stream.write_all(&raw::frame(DATA, 0, id, &message)).unwrap();
                assert!(is_answered(&stream), "the server has hung up");
            }
        });
    };
    victim.measure("messages of 1 GiB announced", announce).await;
}

fn is_answered(stream: &TcpStream) -> bool {
    std::iter::from_fn(|| raw::next_frame(stream)).any(|frame| frame.kind == HEADERS)
}

async fn mebibytes_of_metadata() {
    let victim = Victim::start("", "").await;
    let much = raw::field("x-much", &"y".repeat(16 << 10)).repeat(64);
    let mut frames = Vec::new();
    for (n, part) in [raw::call(EXECUTE), much].concat().chunks(16 << 10).enumerate() {
        let kind = if n == 0 { HEADERS } else { CONTINUATION };
        let flags = if n == 64 { END_HEADERS } else { END_STREAM * u8::from(n == 0) };
        frames.extend(raw::frame(kind, flags, 1, part));
    }
    let send = move |attack: &Attack| {
        attack.repeat(|| {
            let mut stream = raw::connect(&attack.grpc, &[]);
            // It is refused before it is there, with an answer or without.
            let _ = stream.write_all(&frames);
            let _ = is_answered(&stream);
        });
    };
    victim.measure("metadata of 1 MiB", send).await;
}

async fn bytes_one_by_one() {
    let victim = Victim::start("", "").await;
    let dribble = |attack: &Attack| {
        let connect = |door: &str| TcpStream::connect(door).unwrap();
        let greetings: Vec<_> = (0..100).map(|_| connect(&attack.grpc)).collect();
        let heads: Vec<_> = (0..100).map(|_| connect(&attack.http)).collect();
        let mut requests: Vec<_> = (0..100).map(|_| raw::connect(&attack.grpc, &[])).collect();
        for request in &mut requests {
            request.write_all(&raw::frame(HEADERS, END_HEADERS, 1, &raw::call(EXECUTE))).unwrap();
        }
        let mut bytes = b"PRI * HTTP/2.0".iter().cycle();
        attack.repeat(|| {
            let byte = [*bytes.next().unwrap()];
            for mut stream in greetings.iter().chain(&heads) {
                // Some may have been dropped by now.
                let _ = stream.write_all(&byte);
            }
            for request in &mut requests {
                let _ = request.write_all(&raw::frame(DATA, 0, 1, &[0]));
            }
            thread::sleep(Duration::from_millis(100));
        });
    };
    victim.measure("300 connections with a byte every 0.1 s", dribble).await;
}

async fn unread_streams() {
    let mut victim = Victim::start("", "").await;
    let results = much_to_read(&mut victim).await;
    let ask = move |attack: &Attack| {
        let _unread = ask_for_all(&attack.grpc, &results);
        attack.lasts();
    };
    victim.measure("800 streams that are not read", ask).await;
}
