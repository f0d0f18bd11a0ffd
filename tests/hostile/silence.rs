//! Connections with a call that goes on, whose client has gone without a word.

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::{
    harness::{
        DEADLINE,
        raw::{self, ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING},
    },
    hostile::victim::Victim,
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
    let (gone, mut alive) = (watch(&victim), watch(&victim));
    let begun = Instant::now();
    // It is sent everything, and reads it, but says nothing.
    let ended = std::thread::spawn(move || {
        while raw::next_frame(&gone).is_some() {}
        begun.elapsed()
    });
    let answering = std::thread::spawn(move || {
        let mut pings = 0;
        while begun.elapsed() < Duration::from_secs(4) {
            let frame = raw::next_frame(&alive).expect("who answers is kept");
            if frame.kind == PING && frame.flags & ACK == 0 {
                alive.write_all(&raw::frame(PING, ACK, 0, &frame.payload)).unwrap();
                pings += 1;
            }
        }
        pings
    });
    victim.serves_others().await;
    let (lasted, pings) = (ended.join().unwrap(), answering.join().unwrap());
    assert!(lasted < DEADLINE, "the server keeps a client that answers no ping");
    assert!(pings > 2, "{pings}");
    victim.recovers().await;
}
