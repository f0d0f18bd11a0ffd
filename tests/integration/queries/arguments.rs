//! Bad input: the status, the field that it names, and the text for people.

use remuda::api::proto::{self, ListQueriesRequest, ListWorkersRequest, Query};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::harness::{Server, fake_kind, query};

fn two_kinds() -> Server {
    let embed = fake_kind("embed", &[], "types = [\"embed\", \"rank\"]\nmin = 0");
    let chat = fake_kind("chat", &[], "types = [\"chat\"]\nmin = 0");
    Server::start(&format!("{embed}{chat}"))
}

/// The one field that a status complains about.
fn field(status: &Status) -> String {
    let details = status.get_error_details();
    let violations = &details.bad_request().expect("details name the field").field_violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    violations[0].field.clone()
}

#[tokio::test]
async fn bad_query_is_refused_with_the_field_and_what_to_do() {
    let server = two_kinds();
    let mut client = server.client().await;
    let good = Query { kind: "embed".to_owned(), ..query(&json!(1)) };
    let name = "x".repeat(257);
    let cases: Vec<(Query, &str, &str)> = vec![
        (
            Query { payload: String::new(), ..good.clone() },
            "query.payload",
            "is empty; it must be JSON text, such as {\"hello\":\"world\"} or null",
        ),
        (Query { payload: "{\"a\":".to_owned(), ..good.clone() }, "query.payload", "is not JSON: "),
        (Query { payload: "1 2".to_owned(), ..good.clone() }, "query.payload", "is not JSON: "),
        (
            Query { priority: 1_001, ..good.clone() },
            "query.priority",
            "is 1001; at most 1000 is allowed, 0 is served first",
        ),
        (
            Query { kind: "embd".to_owned(), ..good.clone() },
            "query.kind",
            "there is no kind \"embd\"; this pool has: embed (types embed, rank), chat (types chat)",
        ),
        (
            Query { kind: String::new(), r#type: "draw".to_owned(), ..good.clone() },
            "query.type",
            "no kind serves the type \"draw\"; name a kind, or one of the types of: embed (types embed, rank), chat (types chat)",
        ),
        (
            Query { kind: String::new(), ..good.clone() },
            "query.kind",
            "the query names neither kind nor type, and this pool has several kinds: ",
        ),
        (Query { key: name.clone(), ..good.clone() }, "query.key", "has 257 bytes; at most 256 are allowed"),
        (Query { owner: name.clone(), ..good.clone() }, "query.owner", "has 257 bytes; at most 256 are allowed"),
        (
            Query { session_id: "a\u{7}".to_owned(), ..good.clone() },
            "query.session_id",
            "has a control character; only printable text is allowed",
        ),
        (
            Query { timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }), ..good.clone() },
            "query.timeout",
            "is negative; give a time above zero",
        ),
        (
            Query { queue_timeout: Some(prost_types::Duration::default()), ..good.clone() },
            "query.queue_timeout",
            "is zero; omit it for no limit of its own, or give a time above zero",
        ),
    ];
    for (bad, expected_field, text) in cases {
        let status = client.submit(bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert_eq!(field(&status), expected_field);
        let start = format!("{expected_field}: {text}");
        assert!(status.message().starts_with(&start), "{:?} does not start with {start:?}", status.message());
    }
}

#[tokio::test]
async fn bad_ids_pages_and_reasons_are_named_too() {
    let server = two_kinds();
    let mut client = server.client().await;
    let none = client.pool.submit(proto::SubmitRequest::default()).await.unwrap_err();
    assert_eq!(none.message(), "query: is missing; it holds the payload to run");
    let status = client.execute_as("two words", query(&json!(1))).await.unwrap_err();
    assert_eq!(field(&status), "query_id");
    assert_eq!(client.read("", 0, 1).await.unwrap_err().message(), "query_id: must not be empty");
    let status = client.cancel("x", &"r".repeat(1_025)).await.unwrap_err();
    assert_eq!(status.message(), "reason: has 1025 bytes; at most 1024 are allowed");
    let status =
        client.admin.list_workers(ListWorkersRequest { page_size: 1_001, ..Default::default() }).await.unwrap_err();
    assert_eq!(status.message(), "page_size: is 1001; at most 1000 is allowed");
    let bad = ListQueriesRequest { page_token: "next".to_owned(), ..Default::default() };
    let status = client.admin.list_queries(bad).await.unwrap_err();
    assert_eq!(status.message(), "page_token: is not from this server; omit it for the first page");
    let status =
        client.admin.list_queries(ListQueriesRequest { states: vec![99], ..Default::default() }).await.unwrap_err();
    assert!(status.message().starts_with("states: has 99, which is no state; known are: pending, "), "{status:?}");
}

#[tokio::test]
async fn missing_query_worker_or_letter_is_not_found() {
    let server = two_kinds();
    let mut client = server.client().await;
    let status = client.admin.get_worker(proto::GetWorkerRequest { worker_id: 99 }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "worker 99 is not known; ended workers are kept for a limited time");
    let status = client.admin.get_query(proto::GetQueryRequest { query_id: "gone".to_owned() }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let status = client.pool.health(proto::HealthRequest { kind: "embd".to_owned() }).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "there is no kind \"embd\"; this pool has: embed, chat")
    );
    let request = ListWorkersRequest { kind: "embd".to_owned(), ..Default::default() };
    assert_eq!(client.admin.list_workers(request).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn message_over_the_limit_is_refused_and_the_next_call_works() {
    let kind = fake_kind("k", &[], "min = 1");
    let server = Server::start(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmax_message_bytes = \"64KiB\"\n{kind}"
    ));
    let mut client = server.client().await;
    let status = client.submit(query(&json!("x".repeat(70_000)))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let text = "the request is too large (server.max_message_bytes)";
    assert!(status.message().starts_with(text) && status.message().contains("65536 bytes"), "{status:?}");
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
}

#[tokio::test]
async fn metadata_over_the_limit_is_refused_and_the_next_call_works() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let mut client = server.client().await;
    let mut request = tonic::Request::new(proto::HealthRequest::default());
    request.metadata_mut().insert("x-large", "y".repeat(20_000).parse().unwrap());
    assert!(client.pool.health(request).await.is_err());
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
}

#[tokio::test]
async fn method_that_does_not_exist_is_unimplemented() {
    let server = two_kinds();
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<proto::HealthRequest, proto::HealthResponse>::default();
    let path = "/remuda.v1.WorkerPool/Nope".parse().unwrap();
    let status = grpc.unary(tonic::Request::new(proto::HealthRequest::default()), path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let counted = server.metric(r#"remuda_grpc_requests_total{code="UNIMPLEMENTED",method="other"}"#);
    assert_eq!(counted as u32, 1);
}
