//! Attacks that tests and benchmarks share.

use std::{io::Write, net::TcpStream, sync::LazyLock};

use prost::Message;
use remuda::api::proto::{StreamResultsRequest, WatchEventsRequest};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::{
    harness::{
        query,
        raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE},
        skip,
    },
    hostile::victim::Victim,
};

pub(crate) const EXECUTE: &str = "/remuda.v1.WorkerPool/Execute";
/// `max_connections` of a server that is flooded with connections.
pub(crate) const MAX_CONNECTIONS: usize = 200;
const MANY_CONNECTIONS: u64 = 10_000;
const UNREAD_STREAMS: u32 = 200;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Calls that are taken back at once, by the hundred. Made beforehand, so that to flood costs the flooder as little as can be.
static RESETS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let call = raw::call(EXECUTE);
    let pair =
        |id| [raw::frame(HEADERS, END_HEADERS, id, &call), raw::frame(RST_STREAM, 0, id, &[0, 0, 0, 8])].concat();
    (1..200_000).step_by(200).map(|first| (first..first + 200).step_by(2).flat_map(pair).collect()).collect()
});

/// Opens calls and takes them back at once, until the server closes the connection. Gives how many it took.
pub(crate) fn reset_flood(address: &str) -> usize {
    let mut stream = raw::connect(address, &[]);
    let taken = RESETS.iter().take_while(|calls| stream.write_all(calls).is_ok()).count();
    assert!(taken < RESETS.len(), "the server took every reset");
    taken * 100
}

/// Connections that this process can open: `MANY_CONNECTIONS`, or as many as its limit allows, which is not the whole test.
pub(crate) fn connections_to_open() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = MANY_CONNECTIONS.min(room.saturating_sub(2_000));
    if count < MANY_CONNECTIONS {
        skip(&format!(
            "room for {MANY_CONNECTIONS} connections rather than {count} (the limit of open files is {room})"
        ));
    }
    count
}

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
    let ids = (1..UNREAD_STREAMS * 2).step_by(2);
    let frames = ids.map(|id| [raw::frame(HEADERS, END_HEADERS, id, &call), raw::frame(DATA, END_STREAM, id, &body)]);
    stream.write_all(&frames.flatten().flatten().collect::<Vec<u8>>()).unwrap();
    stream
}

/// A query of which 8 MiB are kept.
pub(crate) async fn much_to_read(victim: &mut Victim) -> StreamResultsRequest {
    let flood = json!({"steps": [{"messages": {"count": 8_000, "size": 1_024}}, {"complete": 1}]});
    let ended = victim.client.execute(query(&flood)).await;
    assert_eq!(ended.events.len(), 8_001);
    StreamResultsRequest { query_id: ended.query_id, from_sequence: 0 }
}

/// Connections that ask for results with an unlimited, a usual and an empty window, and one that watches the pool.
pub(crate) fn ask_for_all(address: &str, results: &StreamResultsRequest) -> Vec<TcpStream> {
    let readers = [i32::MAX.cast_unsigned(), 65_535, 0]
        .map(|window| ask(address, "/remuda.v1.WorkerPool/StreamResults", results, window));
    let watchers = ask(address, "/remuda.v1.PoolAdmin/WatchEvents", &WatchEventsRequest::default(), 65_535);
    readers.into_iter().chain([watchers]).collect()
}
