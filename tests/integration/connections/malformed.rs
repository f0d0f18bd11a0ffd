//! Requests that no gRPC library would send: each gets a status that says whose mistake it is, and details for programs.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Version};
use prost::Message;
use remuda::api::proto;
use tokio::{net::TcpStream, time::timeout};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::harness::{DEADLINE, Server, fake_kind};

/// One of our own methods, and two of the services that share another way.
const METHODS: [&str; 3] =
    ["/remuda.v1.WorkerPool/Submit", "/remuda.v1.PoolAdmin/GetWorker", "/grpc.health.v1.Health/Check"];

async fn connect(server: &Server) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(&server.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The answer to a call with this body, and whether it lists the compressions that the server accepts.
async fn answer(client: &SendRequest<Bytes>, path: &str, encoding: &str, body: &[u8], ends: bool) -> (Status, bool) {
    let request = Request::post(format!("http://localhost{path}"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("grpc-encoding", encoding)
        .header("te", "trailers");
    let mut client = client.clone().ready().await.unwrap();
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
    stream.send_data(Bytes::copy_from_slice(body), ends).unwrap();
    let response = timeout(DEADLINE, response).await.expect("an answer in time").unwrap();
    let accepted = response.headers().get("grpc-accept-encoding").map(|value| value.to_str().unwrap());
    let accepts = accepted.is_some_and(|list| ["gzip", "zstd"].iter().all(|name| list.contains(name)));
    let status = Status::from_header_map(response.headers()).expect("a refusal has its status among the headers");
    (status, accepts)
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat()
}

fn reason(status: &Status) -> String {
    let info = status.get_error_details().error_info().expect("details say why").clone();
    assert_eq!(info.domain, "remuda");
    info.reason
}

#[tokio::test]
async fn unreadable_request_is_the_callers_mistake_and_says_what_to_do() {
    let server = Server::start(&fake_kind("k", &[], "min = 0"));
    let client = connect(&server).await;
    // A field of the number 1 and of a length that never comes, and the same as text that is none.
    let cases: [(&str, &str, Vec<u8>, &str); 7] = [
        ("cut short within", "identity", framed(0, &[0x0a, 0x7f, b'x']), "failed to decode Protobuf message"),
        ("of no wire type", "identity", framed(0, &[0x0f]), "failed to decode Protobuf message"),
        ("absent", "identity", Vec::new(), "Missing request message"),
        ("without its prefix", "identity", vec![0, 0], "Unexpected EOF"),
        ("shorter than it says", "identity", vec![0, 0, 0, 0, 9, 1], "Unexpected EOF"),
        ("of a strange flag", "identity", framed(7, &[]), "invalid compression flag: 7"),
        ("not the gzip that it says", "gzip", framed(1, b"whatever"), "Error decompressing"),
    ];
    for path in METHODS {
        for (what, encoding, body, text) in &cases {
            let (status, _) = answer(&client, path, encoding, body, true).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{path}, {what}: {status:?}");
            assert!(status.message().starts_with("the request cannot be decoded: "), "{path}, {what}: {status:?}");
            assert!(status.message().contains(text), "{path}, {what}: {status:?}");
            assert_eq!(reason(&status), "MALFORMED_REQUEST", "{path}, {what}");
        }
    }
    let mistakes =
        server.metric(r#"remuda_grpc_requests_total{code="INVALID_ARGUMENT",method="remuda.v1.WorkerPool/Submit"}"#);
    assert_eq!(mistakes as usize, cases.len());
}

#[tokio::test]
async fn unknown_compression_is_unimplemented_and_unnamed_compression_internal() {
    let server = Server::start(&fake_kind("k", &[], "min = 0"));
    let client = connect(&server).await;
    for path in METHODS {
        let (status, accepts) = answer(&client, path, "snappy", &framed(1, b"whatever"), true).await;
        assert_eq!(status.code(), Code::Unimplemented, "{path}: {status:?}");
        assert!(
            status.message().contains("`snappy`") && status.message().contains("; send messages uncompressed"),
            "{status:?}"
        );
        assert_eq!(reason(&status), "UNSUPPORTED_COMPRESSION");
        assert!(accepts, "{path}: the server says what it knows");
        // As gRPC asks for.
        let (status, _) = answer(&client, path, "identity", &framed(1, b"whatever"), true).await;
        assert_eq!((status.code(), reason(&status)), (Code::Internal, "BAD_COMPRESSED_FLAG".to_owned()), "{path}");
        assert!(status.message().contains("compressed-flag"), "{status:?}");
    }
}

#[tokio::test]
async fn slow_large_or_misdirected_request_gets_details_too() {
    let server = Server::start(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nrequest_timeout = \"1s\"\n\
         max_message_bytes = \"64KiB\"\n{}",
        fake_kind("k", &[], "min = 0")
    ));
    let client = connect(&server).await;
    for path in METHODS {
        let (status, _) = answer(&client, path, "identity", &[0, 0, 0], false).await;
        assert_eq!((status.code(), reason(&status)), (Code::DeadlineExceeded, "REQUEST_TIMEOUT".to_owned()), "{path}");
        let text = "the request did not arrive within 1s (server.request_timeout)";
        assert_eq!(status.message(), text, "{path}");
        let (status, _) = answer(&client, path, "identity", &[0, 0, 1, 0, 1], false).await;
        let expected = (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".to_owned());
        assert_eq!((status.code(), reason(&status)), expected, "{path}");
        assert!(status.message().contains("found 65537 bytes, the limit is: 65536 bytes"), "{status:?}");
    }
    let message = framed(0, &proto::HealthRequest::default().encode_to_vec());
    let (status, _) = answer(&client, "/remuda.v1.WorkerPool/Nope", "identity", &message, true).await;
    assert_eq!((status.code(), reason(&status)), (Code::Unimplemented, "METHOD_NOT_FOUND".to_owned()));
    let health = framed(0, &[0x0a, 1, b'x']);
    let (status, _) = answer(&client, "/grpc.health.v1.Health/Check", "identity", &health, true).await;
    assert_eq!((status.code(), reason(&status)), (Code::NotFound, "SERVICE_NOT_FOUND".to_owned()));
}
