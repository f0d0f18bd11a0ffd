//! Too much at once: resets, messages, metadata.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    harness::{
        DEADLINE,
        raw::{self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM},
    },
    hostile::attacks::{EXECUTE, reset_flood},
    hostile::victim::{KEPT_BYTES, Victim},
};

const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_end_the_connection_and_nobody_else_notices() {
    let mut victim = Victim::start("", "").await;
    let enough = Arc::new(AtomicBool::new(false));
    let flooding = thread::spawn({
        let (enough, address) = (enough.clone(), victim.server.grpc.clone());
        move || {
            let mut connections = 0;
            while connections < 3 || !enough.load(Relaxed) {
                reset_flood(&address);
                connections += 1;
            }
        }
    });
    victim.serves_others().await;
    enough.store(true, Relaxed);
    flooding.join().unwrap();
    victim.recovers().await;
}

/// Calls that have been looked at may all be stopped at once, even by someone who has never had an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_stops_a_thousand_calls_at_once_is_served_on() {
    let mut victim = Victim::start("", "").await;
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    let (call, calls) = (raw::call(EXECUTE), (1..2_000).step_by(2));
    let opened: Vec<u8> = calls.clone().flat_map(|id| raw::frame(HEADERS, END_HEADERS, id, &call)).collect();
    let stopped: Vec<u8> = calls.flat_map(|id| raw::frame(RST_STREAM, 0, id, &[0, 0, 0, 8])).collect();
    stream.write_all(&[opened, raw::frame(PING, 0, 0, &[0; 8])].concat()).unwrap();
    let frames = || std::iter::from_fn(|| raw::next_frame(&stream));
    assert!(frames().any(|frame| frame.kind == PING), "they have been looked at");
    victim.serves_others().await;
    (&stream).write_all(&stopped).unwrap();
    let health = raw::frame(HEADERS, END_HEADERS, 2_001, &raw::call("/remuda.v1.WorkerPool/Health"));
    (&stream).write_all(&[health, raw::frame(DATA, END_STREAM, 2_001, &[0; 5])].concat()).unwrap();
    assert!(frames().any(|frame| frame.kind == HEADERS), "the next call is answered");
    drop(stream);
    victim.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_headers_end_the_connection() {
    let mut victim = Victim::start("", "").await;
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    stream.write_all(&raw::frame(HEADERS, 0, 1, &raw::call(EXECUTE))).unwrap();
    let part = raw::frame(CONTINUATION, 0, 1, &raw::field("x", "y").repeat(1_000));
    let refused = (0..100_000).any(|_| stream.write_all(&part).is_err());
    assert!(refused, "the server took 500 MB of headers");
    victim.serves_others().await;
    let code = raw::farewell(&stream);
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    victim.recovers().await;
}

/// A client may break the rules of HTTP/2 now and then, but not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_break_the_rules_end_the_connection() {
    let mut victim = Victim::start("", "").await;
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    // A message is promised and does not come.
    let call = [raw::call(EXECUTE), raw::field("content-length", "5")].concat();
    let answers = thread::spawn({
        let stream = stream.try_clone().unwrap();
        move || raw::farewell(&stream)
    });
    let calling = thread::spawn(move || {
        let call = |id| raw::frame(HEADERS, END_HEADERS | END_STREAM, id, &call);
        (1..100_000_u32).step_by(2).take_while(|id| stream.write_all(&call(*id)).is_ok()).count()
    });
    victim.serves_others_until(|_| calling.is_finished()).await;
    let taken = calling.join().unwrap();
    assert!((1_000..40_000).contains(&taken), "{taken} calls");
    let code = answers.join().unwrap();
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    victim.recovers().await;
}

async fn h2(address: &str) -> SendRequest<Bytes> {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn request(headers: HeaderMap) -> Request<()> {
    let mut request = Request::post(format!("http://localhost{EXECUTE}")).body(()).unwrap();
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request.headers_mut().extend(headers);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gibibyte_message_is_refused_when_it_is_announced() {
    let mut victim = Victim::start("", "").await;
    let mut client = h2(&victim.server.grpc).await;
    let announcing = tokio::spawn(async move {
        for _ in 0..100 {
            let (response, mut body) = client.send_request(request(HeaderMap::new()), false).unwrap();
            let announced = [&[0], &(1_u32 << 30).to_be_bytes()[..], &[b'x'; 1_000]].concat();
            body.send_data(announced.into(), false).unwrap();
            let response = timeout(DEADLINE, response).await.expect("an answer comes in time").unwrap();
            let [status, message] =
                ["grpc-status", "grpc-message"].map(|name| response.headers()[name].to_str().unwrap().to_owned());
            assert_eq!(status, "8", "RESOURCE_EXHAUSTED: {message}");
        }
    });
    victim.serves_others_until(|_| announcing.is_finished()).await;
    announcing.await.unwrap();
    assert!(victim.grown() < KEPT_BYTES, "{} bytes", victim.grown());
    victim.recovers().await;
}

async fn send_a_mebibyte_of_metadata(address: String) {
    let mut headers = HeaderMap::new();
    for n in 0..64 {
        let name: http::HeaderName = format!("x-{n}").parse().unwrap();
        headers.insert(name, "y".repeat(16 << 10).parse().unwrap());
    }
    let mut client = h2(&address).await;
    let (response, _body) = client.send_request(request(headers), true).unwrap();
    match timeout(DEADLINE, response).await.expect("an answer comes in time") {
        Ok(response) => assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        Err(error) => assert!(error.is_reset() || error.is_go_away() || error.is_io(), "{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mebibyte_of_metadata_is_refused() {
    let mut victim = Victim::start("", "").await;
    let calls: JoinSet<()> = (0..20).map(|_| send_a_mebibyte_of_metadata(victim.server.grpc.clone())).collect();
    let refused = tokio::spawn(calls.join_all());
    victim.serves_others_until(|_| refused.is_finished()).await;
    refused.await.unwrap();
    victim.recovers().await;
}

/// Calls that are open at once beyond the limit are turned away one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_allowed_on_a_connection_are_turned_away() {
    let mut victim = Victim::start("max_concurrent_streams = 10", "").await;
    let mut stream = raw::connect(&victim.server.grpc, &[]);
    let call = raw::call(EXECUTE);
    let mut bytes = Vec::new();
    for id in (1..5_000_u32).step_by(2) {
        bytes.extend(raw::frame(HEADERS, END_HEADERS, id, &call));
        bytes.extend(raw::frame(DATA, 0, id, &[0]));
    }
    stream.write_all(&bytes).unwrap();
    let refused = thread::spawn({
        let stream = stream.try_clone().unwrap();
        move || {
            let resets = std::iter::from_fn(|| raw::next_frame(&stream)).filter(|frame| frame.kind == RST_STREAM);
            resets.take(2_490).all(|frame| frame.payload == REFUSED_STREAM.to_be_bytes())
        }
    });
    victim.serves_others().await;
    assert!(refused.join().unwrap(), "a call was taken back for another reason");
    drop(stream);
    victim.recovers().await;
}
