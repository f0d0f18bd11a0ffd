//! More connections than there are places.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Mutex;

use super::{
    Victim,
    raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS},
    tell,
};
use crate::harness::{DEADLINE, eventually};

const MANY: u64 = 10_000;
const PLACES: usize = 200;

/// Held by whoever opens that many: this process has not descriptors enough for two of them at once.
static ALONE: Mutex<()> = Mutex::const_new(());

/// How many connections this process can have, up to `MANY`.
fn many() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = MANY.min(room.saturating_sub(2_000));
    if count < MANY {
        tell(&format!("only {count} connections: the limit of open files is {room}"));
    }
    count
}

/// What the server has closed, or will soon.
fn is_closed(stream: &mut TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(DEADLINE));
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_that_say_nothing_keep_nobody_out() {
    let _alone = ALONE.lock().await;
    let limits = format!("max_connections = {PLACES}\nmax_http_connections = 50");
    let mut victim = Victim::start(&limits, "").await;
    let (grpc, http) = (victim.server.grpc.clone(), victim.server.http.clone());
    let opening = tokio::task::spawn_blocking(move || {
        let count = many();
        let mut streams: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(&grpc).unwrap()).collect();
        streams.extend((0..count / 10).map(|_| TcpStream::connect(&http).unwrap()));
        streams
    });
    let opened = |victim: &Victim| {
        assert!(victim.more_descriptors() < PLACES + 50 + 16, "{}", victim.more_descriptors());
        opening.is_finished()
    };
    victim.serves_others_until("while 10,000 connections are opened", opened).await;
    let mut streams = opening.await.unwrap();
    victim.serves_others("with 10,000 connections left open").await;
    assert!(victim.more_descriptors() < PLACES + 50 + 16, "{}", victim.more_descriptors());
    // Those that were let in are closed too, though their client does not.
    eventually("the server to be rid of them", || (victim.more_descriptors() < 16).then_some(()));
    assert!(is_closed(streams.last_mut().unwrap()) && is_closed(&mut streams[0]));
    drop(streams);
    victim.recovers("10,000 connections").await;
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_connections_are_left_open_others_wait_no_longer_than_twice_the_usual() {
    let _alone = ALONE.lock().await;
    let mut victim = Victim::start(&format!("max_connections = {PLACES}"), "").await;
    let leave_open = |victim: &Victim| -> Vec<TcpStream> {
        (0..many()).map(|_| TcpStream::connect(&victim.server.grpc).unwrap()).collect()
    };
    victim.keeps_its_promise("with 10,000 connections left open", leave_open).await;
    victim.recovers("10,000 connections left open, again and again").await;
}

/// Connections that speak HTTP/2 but never call do not keep those out who do; and those who have called stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_calls_makes_room_for_who_does() {
    let mut victim = Victim::start("max_connections = 20", "").await;
    let call = || {
        let mut stream = raw::connect(&victim.server.grpc, &[]);
        let call = raw::call("/remuda.v1.WorkerPool/Health");
        stream.write_all(&raw::frame(HEADERS, END_HEADERS, 1, &call)).unwrap();
        stream.write_all(&raw::frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
        stream
    };
    let callers: Vec<TcpStream> = std::iter::repeat_with(call).take(15).collect();
    let answered = r#"remuda_grpc_requests_total{code="OK",method="remuda.v1.WorkerPool/Health"}"#;
    eventually("the calls to be answered", || (victim.server.metric(answered) as u32 == 15).then_some(()));
    let idle: Vec<TcpStream> = (0..100).map(|_| raw::connect(&victim.server.grpc, &[])).collect();
    victim.serves_others("with 100 connections that never call").await;
    assert!(callers.iter().all(is_open), "one that has called was made to leave");
    assert!(!is_open(&idle[0]), "one that has never called was not");
    drop((callers, idle));
    victim.recovers("100 connections that never call").await;
}
