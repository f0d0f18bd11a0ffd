//! More connections than the limit allows.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::{
    harness::{
        DEADLINE, eventually,
        raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS},
    },
    hostile::attacks::{MAX_CONNECTIONS, connections_to_open},
    hostile::victim::{Victim, normal},
};

/// True once the server has closed the connection; false if it is silent for long.
pub(super) fn is_closed(stream: &mut TcpStream) -> bool {
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
    let limits = format!("max_connections = {MAX_CONNECTIONS}\nmax_http_connections = 50");
    let mut victim = Victim::start(&limits, "").await;
    let (grpc, http) = (victim.server.grpc.clone(), victim.server.http.clone());
    let count = connections_to_open();
    let opening = tokio::task::spawn_blocking(move || {
        let mut streams: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(&grpc).unwrap()).collect();
        streams.extend((0..count / 10).map(|_| TcpStream::connect(&http).unwrap()));
        streams
    });
    let opened = |victim: &Victim| {
        assert!(victim.more_descriptors() < MAX_CONNECTIONS + 50 + 16, "{}", victim.more_descriptors());
        opening.is_finished()
    };
    victim.serves_others_until(opened).await;
    let mut streams = opening.await.unwrap();
    victim.serves_others().await;
    assert!(victim.more_descriptors() < MAX_CONNECTIONS + 50 + 16, "{}", victim.more_descriptors());
    // Those that were let in are closed too, though their client does not.
    eventually("the server to be rid of them", || (victim.more_descriptors() < 16).then_some(()));
    assert!(is_closed(streams.last_mut().unwrap()) && is_closed(&mut streams[0]));
    drop(streams);
    victim.recovers().await;
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

/// A connection with one call to this method, which takes an empty message.
fn call(victim: &Victim, method: &str) -> TcpStream {
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    stream.write_all(&raw::frame(HEADERS, END_HEADERS, 1, &raw::call(method))).unwrap();
    stream.write_all(&raw::frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
    stream
}

/// So many connections with one call each, which has been answered.
fn call_once(victim: &Victim, count: usize) -> Vec<TcpStream> {
    let callers = (0..count).map(|_| call(victim, "/remuda.v1.WorkerPool/Health")).collect();
    let answered = r#"remuda_grpc_requests_total{code="OK",method="remuda.v1.WorkerPool/Health"}"#;
    eventually("the calls to be answered", || (victim.server.metric(answered) as usize == count).then_some(()));
    callers
}

/// Connections that speak HTTP/2 but never call do not keep those out who do; and those who have called stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_without_a_call_makes_room_for_one_that_calls() {
    let mut victim = Victim::start("max_connections = 20", "").await;
    let callers = call_once(&victim, 15);
    let idle: Vec<TcpStream> = (0..100).map(|_| raw::connect(&victim.server.grpc, &[])).collect();
    victim.serves_others().await;
    assert!(callers.iter().all(is_open), "one that has called was made to leave");
    assert!(!is_open(&idle[0]), "one that has never called was not");
    drop((callers, idle));
    victim.recovers().await;
}

/// One finished call does not keep a place for ever: whoever has been idle for longest makes room, and the log says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_makes_room_and_one_with_an_open_call_does_not() {
    let victim = Victim::start("max_connections = 20", "").await;
    let watching: Vec<TcpStream> = (0..5).map(|_| call(&victim, "/remuda.v1.PoolAdmin/WatchEvents")).collect();
    let idle = call_once(&victim, 14);
    let open = "remuda_grpc_connections";
    eventually("all places to be taken", || (victim.server.metric(open) as u32 == 20).then_some(()));
    let mut newcomers = Vec::new();
    for _ in 0..10 {
        let mut newcomer = victim.server.client().await;
        newcomer.execute(normal()).await.result();
        newcomers.push(newcomer);
    }
    assert!(watching.iter().all(is_open), "one with an open call was made to leave");
    // The victim's own client was idle for longest.
    assert_eq!(idle.iter().filter(|stream| is_open(stream)).count(), 5);
    let log = victim.server.log();
    let told = log.iter().filter(|line| line.contains("server.max_connections")).count();
    assert_eq!(told, 1, "the log says it once in a while: {log:?}");
    drop((watching, idle, newcomers));
    victim.recovers().await;
}
