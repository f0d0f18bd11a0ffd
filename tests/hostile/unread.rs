//! Streams that are asked for and never read.

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use prost::Message;
use remuda::api::proto::{StreamResultsRequest, WatchEventsRequest};
use serde_json::json;

use super::{
    Victim,
    raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE},
    tell,
};
use crate::harness::{eventually, query};

const STREAMS: u32 = 200;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Asks for the same again and again, on one connection, and never reads a byte.
fn ask(address: &str, path: &str, message: &impl Message, window: u32) -> TcpStream {
    let mut stream = raw::connect(address, &[(INITIAL_WINDOW_SIZE, window)]);
    if window > 65_535 {
        stream.write_all(&raw::frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes())).unwrap();
    }
    let message = message.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let call = raw::call(path);
    let ids = (1..STREAMS * 2).step_by(2);
    let frames = ids.map(|id| [raw::frame(HEADERS, END_HEADERS, id, &call), raw::frame(DATA, END_STREAM, id, &body)]);
    stream.write_all(&frames.flatten().flatten().collect::<Vec<u8>>()).unwrap();
    stream
}

/// A query of which 8 MiB are kept.
pub(super) async fn much_to_read(victim: &mut Victim) -> StreamResultsRequest {
    let flood = json!({"steps": [{"messages": {"count": 8_000, "size": 1_024}}, {"complete": 1}]});
    let ended = victim.client.execute(query(&flood)).await;
    assert_eq!(ended.events.len(), 8_001);
    StreamResultsRequest { query_id: ended.query_id, from_sequence: 0 }
}

/// Whoever asks for results may be sent as much as there is, as much as is usual, or nothing at all; and some watch the pool.
pub(super) fn ask_for_all(address: &str, results: &StreamResultsRequest) -> Vec<TcpStream> {
    let readers = [i32::MAX.cast_unsigned(), 65_535, 0]
        .map(|window| ask(address, "/remuda.v1.WorkerPool/StreamResults", results, window));
    let watchers = ask(address, "/remuda.v1.PoolAdmin/WatchEvents", &WatchEventsRequest::default(), 65_535);
    readers.into_iter().chain([watchers]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_never_read_cost_a_bounded_amount_and_are_dropped() {
    let limits = "keepalive_interval = \"1s\"\nkeepalive_timeout = \"2s\"";
    let mut victim = Victim::start(limits, "").await;
    let results = much_to_read(&mut victim).await;
    let unread = ask_for_all(&victim.server.grpc, &results);
    let begun = Instant::now();
    let mut most = 0;
    let enough = |victim: &Victim| {
        most = most.max(victim.grown());
        begun.elapsed() > Duration::from_secs(2)
    };
    victim.serves_others_until("while 800 streams begin that are not read", enough).await;
    tell(&format!("unread streams: {} MiB more at most", most >> 20));
    // Each holds a batch of events and what HTTP/2 has buffered of it, and none the 8 MiB that it could have.
    assert!(most < 100 << 20, "{most} bytes");
    // They do not answer when asked whether they live, so they are dropped, though they have not gone.
    eventually("unread connections to be dropped", || (victim.more_descriptors() < 8).then_some(()));
    drop(unread);
    victim.recovers("streams that were not read").await;
}
