//! Connections with an open call whose client has vanished without closing it.

use std::{io::Write, net::TcpStream};

use crate::{
    harness::{
        eventually,
        raw::{self, ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING},
    },
    hostile::{connections::is_closed, victim::Victim},
};

/// Watches the pool on a connection of its own, where nothing happens unless someone asks for it.
fn watch(victim: &Victim) -> TcpStream {
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    let call = raw::call("/remuda.v1.PoolAdmin/WatchEvents");
    stream.write_all(&raw::frame(HEADERS, END_HEADERS, 1, &call)).unwrap();
    stream.write_all(&raw::frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_whose_client_answers_no_ping_is_dropped_and_others_last() {
    let limits = "keepalive_interval = \"500ms\"\nkeepalive_timeout = \"1s\"";
    let mut victim = Victim::start(limits, "").await;
    let (mut gone, mut alive) = (watch(&victim), watch(&victim));
    // It reads all that it is sent, but sends nothing.
    let dropped = std::thread::spawn(move || is_closed(&mut gone));
    // It answers for longer than the other one lasts.
    let answering = std::thread::spawn(move || {
        let mut pings = 0;
        while pings < 6 {
            let frame = raw::next_frame(&alive).expect("a client that answers is kept");
            if frame.kind == PING && frame.flags & ACK == 0 {
                alive.write_all(&raw::frame(PING, ACK, 0, &frame.payload)).unwrap();
                pings += 1;
            }
        }
        alive
    });
    victim.serves_others().await;
    eventually("the client that answers no ping to be dropped", || dropped.is_finished().then_some(()));
    assert!(dropped.join().unwrap());
    drop(answering.join().unwrap());
    victim.recovers().await;
}
