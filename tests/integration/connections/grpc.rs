//! The gRPC side as clients meet it: compression, content types, deadlines of calls, and the age of connections.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use prost::Message;
use remuda::api::proto::{HealthRequest, HealthResponse, SubmitRequest, worker_pool_client::WorkerPoolClient};
use serde_json::json;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};
use tonic_types::StatusExt;

use crate::harness::{DEADLINE, Gate, Server, TestEvent, fake_kind, query};

const HEALTH: &str = "/remuda.v1.WorkerPool/Health";

fn server(settings: &str) -> Server {
    let doors = "listen = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"";
    Server::start(&format!("[server]\n{doors}\n{settings}\n{}", fake_kind("k", &[], "min = 1\nmax = 1")))
}

async fn connect(server: &Server) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let tcp = TcpStream::connect(&server.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    (client.ready().await.unwrap(), tokio::spawn(connection))
}

/// The answer to a Health call with these headers, whose body is `None` if it never comes.
async fn ask(server: &Server, headers: &[(&str, &str)], body: Option<&[u8]>) -> Response<h2::RecvStream> {
    let (mut client, _connection) = connect(server).await;
    let mut request = Request::post(format!("http://localhost{HEALTH}")).version(Version::HTTP_2);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
    if let Some(body) = body {
        stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
    }
    timeout(DEADLINE, response).await.expect("an answer in time").unwrap()
}

fn reason(headers: &HeaderMap) -> (Code, String) {
    let status = Status::from_header_map(headers).expect("a refusal has its status among the headers");
    (status.code(), status.get_error_details().error_info().expect("details say why").reason.clone())
}

#[tokio::test]
async fn requests_may_be_compressed_and_answers_are_where_configured_and_asked_for() {
    let (plain, compressing) = (server(""), server("compression = [\"zstd\", \"gzip\"]"));
    for (server, configured) in [(&plain, false), (&compressing, true)] {
        let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
        for (encoding, name) in [(CompressionEncoding::Gzip, "gzip"), (CompressionEncoding::Zstd, "zstd")] {
            let mut client = WorkerPoolClient::new(channel.clone()).send_compressed(encoding);
            let answer = client.health(HealthRequest::default()).await.unwrap();
            assert_eq!(answer.metadata().get("grpc-encoding"), None, "nobody asked for it");
            let mut client = client.accept_compressed(encoding);
            let answer = client.health(HealthRequest::default()).await.unwrap();
            let used = answer.metadata().get("grpc-encoding").map(|value| value.to_str().unwrap());
            assert_eq!(used, configured.then_some(name));
            assert_eq!(answer.into_inner().kinds.len(), 1);
        }
    }
}

#[tokio::test]
async fn compressed_request_is_bounded_by_what_it_unpacks_to() {
    let server = server("max_message_bytes = \"64KiB\"");
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
        let mut client = WorkerPoolClient::new(channel.clone()).send_compressed(encoding);
        let bomb = query(&json!("x".repeat(10 << 20)));
        let status = client.submit(SubmitRequest { query_id: String::new(), query: Some(bomb) }).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(status.message().contains("server.max_message_bytes"), "{status:?}");
    }
}

#[tokio::test]
async fn content_type_that_is_not_grpcs_is_415() {
    let server = server("");
    let empty = [0; 5];
    for content_type in ["application/json", "application/grpc-web", "text/plain"] {
        let answer = ask(&server, &[("content-type", content_type)], Some(&empty)).await;
        assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type}");
    }
    let mut answer = ask(&server, &[("content-type", "application/grpc+proto")], Some(&empty)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let message = timeout(DEADLINE, answer.body_mut().data()).await.unwrap().unwrap().unwrap();
    assert!(HealthResponse::decode(&message[5..]).is_ok());
    let counted = server.metric(r#"remuda_grpc_requests_total{code="UNKNOWN",method="remuda.v1.WorkerPool/Health"}"#);
    assert_eq!(counted as usize, 3);
}

#[tokio::test]
async fn call_that_is_not_answered_before_its_deadline_ends_with_it() {
    let server = server("");
    let headers = [("content-type", "application/grpc"), ("grpc-timeout", "200m")];
    let answer = ask(&server, &headers, None).await;
    assert_eq!(reason(answer.headers()), (Code::DeadlineExceeded, "CLIENT_DEADLINE".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_is_too_old_gets_goaway_and_its_calls_go_on() {
    let server = server("max_connection_age = \"1s\"");
    server.until_ready("k", 1);
    let (client, gate) = (server.client().await, Gate::closed());
    let running = client.begin(gate.query());
    server.until_busy("k", 1);
    let (idle, connection) = connect(&server).await;
    let _ = timeout(DEADLINE, connection).await.expect("an idle connection ends with its age").unwrap();
    assert!(idle.ready().await.is_err(), "it takes no call after its GOAWAY");
    assert!(!running.is_finished(), "the open call goes on");
    // A new connection is made for the next call.
    assert!(server.client().await.health().await.serving);
    gate.open();
    assert!(matches!(running.await.unwrap().last(), TestEvent::Complete(_)));
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grace_of_an_old_connection_ends_its_calls() {
    let server = server("max_connection_age = \"1s\"\nmax_connection_age_grace = \"500ms\"");
    server.until_ready("k", 1);
    let (mut client, gate) = (server.client().await, Gate::closed());
    let ended = timeout(DEADLINE, client.execute_as("", gate.query())).await.expect("the connection is closed");
    assert!(ended.is_ok_and(|ended| ended.status.is_some()), "the stream is cut off");
    gate.open();
}
