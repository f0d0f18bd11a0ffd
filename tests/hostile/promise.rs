//! Whatever the attack, others wait no longer than twice the usual, from its first moment on.

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

use super::{
    Victim,
    connections::{PLACES, many},
    floods::{EXECUTE, reset_flood},
    middle, normal, one,
    raw::{self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS},
    tell,
    unread::{ask_for_all, much_to_read},
};
use crate::harness::{Client, DEADLINE, eventually};

/// How many times the usual others may wait.
const PROMISE: f64 = 2.0;
/// How often that is compared at least, and at most: the machine may do something else in one round or another.
const ROUNDS: (usize, usize) = (3, 12);
/// For how long others are watched each time.
const MEASURED: Duration = Duration::from_millis(300);

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

    /// All that is done at first has been done.
    fn is_under_way(&self) {
        self.under_way.store(true, Relaxed);
    }

    /// The same again and again.
    fn repeat(&self, mut step: impl FnMut()) {
        while !self.is_over() {
            step();
            self.is_under_way();
        }
    }

    /// What is there already lasts.
    fn lasts(&self) {
        self.repeat(|| thread::sleep(Duration::from_millis(5)));
    }
}

/// What others wait: who is connected already, for a query; and who comes now, for a connection and a query.
#[derive(Debug, Clone, Copy)]
struct Waits {
    old: Duration,
    new: Duration,
}

/// What was measured with an attack, or without.
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

    /// How many times the usual that is.
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

impl Times {
    fn are_kept(self) -> bool {
        self.old < PROMISE && self.new < PROMISE
    }
}

impl Victim {
    /// Compares what others wait without the attack, while it begins, and while it lasts. These take turns, so that
    /// whatever else the machine does weighs on all. Nothing makes up for the processors that the attackers use themselves.
    async fn keeps_its_promise(&mut self, during: &str, attack: impl Fn(&Attack) + Send + Sync + 'static) {
        let [mut without, mut begins, mut lasts] = [(); 3].map(|()| Measured::default());
        let attack = Arc::new(attack);
        let mut turned_away = 0;
        for round in 1..=ROUNDS.1 {
            without.push(self.wait(&mut turned_away).await);
            let (begin, last) = self.while_attacked(attack.clone(), &mut turned_away).await;
            begins.push(begin);
            lasts.push(last);
            eventually("the attackers to be gone", || (self.more_descriptors() < 8).then_some(()));
            let usual = without.middle();
            let (first, later) = (begins.times(usual), lasts.times(usual));
            if round >= ROUNDS.0 && first.are_kept() && later.are_kept() {
                tell(&format!(
                    "{during}: a query takes {:.2} times the usual {:?} at first and {:.2} times later, a newcomer's {:.2} \
                     and {:.2} times {:?}, {turned_away} were turned away, in {round} rounds",
                    first.old, usual.old, later.old, first.new, later.new, usual.new
                ));
                return;
            }
        }
        panic!("{during}: others wait {begins:?} at first and {lasts:?} later, without it {without:?}");
    }

    /// What others wait now, in the median of as many queries as there is time for.
    async fn wait(&mut self, turned_away: &mut usize) -> Waits {
        let begun = Instant::now();
        let mut measured = Measured::default();
        while begun.elapsed() < MEASURED || measured.old.len() < 31 {
            let old = one(&mut self.client).await;
            measured.push(Waits { old, new: self.newcomer(turned_away).await });
        }
        measured.middle()
    }

    /// What it takes to connect, and to run a query then. One who is turned away comes again at once.
    async fn newcomer(&self, turned_away: &mut usize) -> Duration {
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
        panic!("a newcomer is not served");
    }

    /// What others wait while the attack begins, and while it lasts.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_connections_are_opened_and_left_open() {
    let mut victim = Victim::alone(&format!("max_connections = {PLACES}"), "").await;
    let count = many();
    let leave_open = move |attack: &Attack| {
        let _left: Vec<_> = (0..count).map(|_| TcpStream::connect(&attack.grpc).unwrap()).collect();
        attack.lasts();
    };
    victim.keeps_its_promise("with 10,000 connections left open", leave_open).await;
    victim.recovers("10,000 connections left open, again and again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_calls_are_made_and_taken_back_at_once() {
    let mut victim = Victim::alone("", "").await;
    // Once beforehand, so that what is sent is made by then.
    reset_flood(&victim.server.grpc);
    let flood = |attack: &Attack| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| attack.repeat(|| _ = reset_flood(&attack.grpc)));
            }
        });
    };
    victim.keeps_its_promise("with 4 floods of resets", flood).await;
    victim.recovers("floods of resets").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_messages_of_a_gibibyte_are_announced() {
    let mut victim = Victim::alone("", "").await;
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
    victim.keeps_its_promise("with messages of 1 GiB", announce).await;
    victim.recovers("messages of 1 GiB").await;
}

fn is_answered(stream: &TcpStream) -> bool {
    std::iter::from_fn(|| raw::next_frame(stream)).any(|frame| frame.kind == HEADERS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_calls_come_with_a_mebibyte_of_metadata() {
    let mut victim = Victim::alone("", "").await;
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
    victim.keeps_its_promise("with metadata of 1 MiB", send).await;
    victim.recovers("metadata of 1 MiB").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_bytes_come_one_by_one() {
    let mut victim = Victim::alone("", "").await;
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
    victim.keeps_its_promise("with bytes one by one", dribble).await;
    victim.recovers("bytes one by one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_streams_are_not_read() {
    let mut victim = Victim::alone("", "").await;
    let results = much_to_read(&mut victim).await;
    let ask = move |attack: &Attack| {
        let _unread = ask_for_all(&attack.grpc, &results);
        attack.lasts();
    };
    victim.keeps_its_promise("with 800 streams that are not read", ask).await;
    victim.recovers("800 streams that were not read, again and again").await;
}
