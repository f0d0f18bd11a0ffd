//! Export of spans: to a collector, to the worker's trace context, and with no collector to be reached.

use std::{net::TcpListener as StdListener, sync::Arc, time::Duration};

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value,
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport};

use crate::{
    harness::{Server, eventually, eventually_async, fake_kind, query},
    integration::tracing::spans::{CALLER, TRACE, execute_with, traceparent},
};

/// An OTLP collector that keeps what it gets.
#[derive(Debug, Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let service = attributes.into_iter().find(|attribute| attribute.key == "service.name").unwrap();
            self.services.lock().push(text(service.value.unwrap().value));
            self.spans.lock().extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one and gives its address.
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let service = TraceServiceServer::new(collector.clone());
        tokio::spawn(transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        (collector, endpoint)
    }

    /// The spans of this name, once there are that many.
    async fn named(&self, name: &str, count: usize) -> Vec<Span> {
        eventually_async(&format!("{count} spans called {name}"), || async {
            let found: Vec<_> = self.spans.lock().iter().filter(|span| span.name == name).cloned().collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }
}

fn text(value: Option<any_value::Value>) -> String {
    match value {
        Some(any_value::Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

fn number(span: &Span, key: &str) -> i64 {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key).unwrap();
    match attribute.value.as_ref().unwrap().value {
        Some(any_value::Value::IntValue(number)) => number,
        ref other => panic!("{key} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

fn exporting(endpoint: &str, more: &str, kind: &str) -> String {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"";
    format!("{server}\notlp_endpoint = {endpoint:?}\n{more}\n{}", fake_kind("k", &[], kind))
}

const EXECUTE: &str = "remuda.v1.WorkerPool/Execute";

#[tokio::test]
async fn caller_trace_goes_through_call_query_and_attempt_to_the_worker() {
    let (collector, endpoint) = Collector::start().await;
    let server = Server::start(&exporting(&endpoint, "", "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let headers = [("traceparent", &*traceparent()), ("tracestate", "vendor=1")];
    let frame = execute_with(&mut client, query(&json!({"steps": ["frame"]})), &headers).await;

    let [call] = &collector.named(EXECUTE, 1).await[..] else { panic!() };
    let [waited] = &collector.named("query", 1).await[..] else { panic!() };
    let [tried] = &collector.named("attempt", 1).await[..] else { panic!() };
    for span in [call, waited, tried] {
        assert_eq!((&*hex(&span.trace_id), &*span.trace_state), (TRACE, "vendor=1"), "{span:?}");
        assert_eq!(span.status.clone().unwrap_or_default().code(), StatusCode::Unset);
    }
    assert_eq!((hex(&call.parent_span_id).as_str(), call.kind()), (CALLER, SpanKind::Server));
    assert_eq!((&waited.parent_span_id, waited.kind()), (&call.span_id, SpanKind::Internal));
    assert_eq!((&tried.parent_span_id, tried.kind()), (&waited.span_id, SpanKind::Client));
    assert_eq!(frame["traceparent"], format!("00-{TRACE}-{}-01", hex(&tried.span_id)));
    assert!(tried.start_time_unix_nano >= waited.start_time_unix_nano);
    assert!(tried.end_time_unix_nano <= waited.end_time_unix_nano);
    assert_eq!(collector.services.lock()[0], "remuda");
}

#[tokio::test]
async fn retried_query_has_a_span_for_each_attempt() {
    let (collector, endpoint) = Collector::start().await;
    let server =
        Server::start(&exporting(&endpoint, "[recovery]\nstrategy = \"retry\"\nattempts = 2", "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let steps = json!({"steps": [{"until_attempt": [1, [{"exit": 7}]]}, "frame"]});
    let frame = client.execute(query(&steps)).await.result();
    let [waited] = &collector.named("query", 1).await[..] else { panic!() };
    let [first, second] = &collector.named("attempt", 2).await[..] else { panic!() };
    for (tried, attempt) in [(first, 1), (second, 2)] {
        assert_eq!((&tried.parent_span_id, number(tried, "remuda.attempt")), (&waited.span_id, attempt));
    }
    let status = first.status.as_ref().unwrap();
    assert_eq!(status.code(), StatusCode::Error);
    assert!(status.message.contains("exited with code 7"), "{status:?}");
    // Nobody sent a trace along, so one began here.
    assert_eq!(frame["traceparent"], format!("00-{}-{}-01", hex(&waited.trace_id), hex(&second.span_id)));
}

#[tokio::test]
async fn unsampled_query_is_not_exported_and_the_worker_learns_it() {
    let (collector, endpoint) = Collector::start().await;
    let server = Server::start(&exporting(&endpoint, "otlp_sample = 0.0", "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let show = || query(&json!({"steps": ["frame"]}));
    let unsampled = traceparent().replace("-01", "-00");
    let frame = execute_with(&mut client, show(), &[("traceparent", &unsampled)]).await;
    let told = frame["traceparent"].as_str().unwrap();
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
    let frame = execute_with(&mut client, show(), &[]).await;
    assert!(frame["traceparent"].as_str().unwrap().ends_with("-00"), "{frame}");
    // The caller's own decision counts more than ours.
    execute_with(&mut client, show(), &[("traceparent", &traceparent())]).await;
    let spans = collector.named("attempt", 1).await;
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE && span.flags & 1 == 1), "{spans:?}");
    assert_eq!(collector.named(EXECUTE, 1).await.len(), 1);
}

#[tokio::test]
async fn last_spans_are_sent_when_the_server_stops() {
    let (collector, endpoint) = Collector::start().await;
    let mut server = Server::start(&exporting(&endpoint, "", "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.execute(query(&json!(1))).await;
    server.signal(Signal::SIGTERM);
    assert!(tokio::task::spawn_blocking(move || server.wait()).await.unwrap().success());
    let names: Vec<_> = collector.spans.lock().iter().map(|span| span.name.clone()).collect();
    for name in [EXECUTE, "query", "attempt"] {
        assert!(names.iter().any(|found| found == name), "{name} is missing in {names:?}");
    }
}

/// Bound of a stop while spans cannot be sent, less than the exporter's own attempts would take together.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Runs many queries, waits until the export of their spans is stuck, and stops.
async fn runs_and_stops<T>(endpoint: &str, is_stuck: impl FnOnce(&Server) -> T) -> Server {
    let mut server = Server::start(&exporting(endpoint, "", "min = 2\nmax = 2"));
    let mut client = server.client().await;
    for n in 0..200 {
        assert_eq!(client.execute(query(&json!(n))).await.result(), json!({"echo": n}));
    }
    let _stuck = is_stuck(&server);
    server.signal(Signal::SIGTERM);
    assert!(server.wait_within(STOP_LIMIT).success());
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_collector_is_logged_once_and_holds_nothing_up() {
    let free = StdListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let server = runs_and_stops(&endpoint, |server| server.logs("cannot export spans")).await;
    let complaints = server.log_lines().into_iter().filter(|line| line.to_string().contains("cannot export spans"));
    let complaints: Vec<_> = complaints.collect();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(complaints[0]["level"], "WARN");
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_never_answers_holds_nothing_up() {
    let silent = StdListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    // Nobody reads what comes.
    let connected = |_: &Server| eventually("the server to connect", || silent.accept().ok());
    runs_and_stops(&endpoint, connected).await;
}
