//! The metrics: the page that lists them, the number of series, and the events that move each of them.

mod moves;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use remuda::api::proto::{Query, SubmitRequest};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::harness::{Server, eventually, fake_kind, query, skip};

/// With `UPDATE_METRICS` set the page is written instead of compared.
#[test]
fn metrics_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = remuda::metrics::page(&remuda::api::methods());
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let how = "UPDATE_METRICS=1 cargo test metrics_page";
    assert!(page == written, "docs/metrics.md is out of date; write it with: {how}");
}

#[tokio::test]
async fn promtool_finds_nothing_to_complain_about() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let mut client = server.client().await;
    client.execute(query(&json!(1))).await;
    let (_, text) = server.get("/metrics");
    let promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = promtool else { return skip("promtool") };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

fn series(server: &Server) -> Vec<String> {
    let (_, text) = server.get("/metrics");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

const QUERIES: usize = 10_000;
const WORKERS: usize = 200;

/// Neither names that clients make up nor workers that come and go add a series.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_cannot_create_series() {
    let config = "[results]\nmax_ended = 100\n[recovery.types.b]\nstrategy = \"retry\"\n[pool]\nmax_workers = 12\n";
    let many = fake_kind("many", &[], "min = 2\nmax = 4\ntypes = [\"a\"]\naffinity = \"prefer\"");
    let once = fake_kind("once", &[], "min = 2\nmax = 8\nmax_queries = 1");
    let server = Server::start(&format!("{config}{many}{once}"));
    let before = series(&server);
    // The kind `many` has the types a and b, the other one b.
    assert_eq!(before.len(), remuda::metrics::series_count(2, 3, remuda::api::methods().len() + 1));

    let client = server.client().await;
    let mut submits = JoinSet::new();
    for n in 0..QUERIES {
        if submits.len() == 256 {
            submits.join_next().await;
        }
        let mut client = client.clone();
        submits.spawn(async move { client.pool.submit(hostile(n)).await });
    }
    submits.join_all().await;
    ask_for_what_is_not_there(&server).await;
    let ended =
        |kind: &str| server.metric(&format!(r#"remuda_query_duration_seconds_count{{kind="{kind}"}}"#)) as usize;
    let refused =
        |reason: &str| server.metric(&format!(r#"remuda_submit_refused_total{{reason="{reason}"}}"#)) as usize;
    eventually("all queries to end", || (ended("many") + ended("once") + refused("invalid") == QUERIES).then_some(()));
    assert!(ended("once") >= WORKERS, "each with a worker of its own");
    assert!(ended("many") > QUERIES / 2);
    assert!(server.metric(r#"remuda_query_results_total{kind="many",outcome="complete",type="other"}"#) > 1_000.0);
    let exits = r#"remuda_worker_exits_total{cause="recycled_queries",kind="once"}"#;
    eventually("the workers to end", || (server.metric(exits) as usize >= WORKERS).then_some(()));
    assert_eq!(series(&server), before);
}

/// A query whose every name is made up; one in fifty needs a worker of its own.
fn hostile(n: usize) -> SubmitRequest {
    let nasty = ["\"", "\\", "{a=\"b\"}", "\u{202e}", "é", " ", "\n", "a,b", "#", "="][n % 10];
    let name = |what: &str| format!("{what}{n}{nasty}");
    let query = Query {
        kind: if n.is_multiple_of(50) { "once" } else { "many" }.to_owned(),
        r#type: if n.is_multiple_of(7) { "a".to_owned() } else { name("type") },
        owner: name("owner"),
        key: name("key"),
        ..query(&json!(n))
    };
    SubmitRequest { query_id: format!("id-{n}"), query: Some(query) }
}

/// Methods and paths can be made up too.
async fn ask_for_what_is_not_there(server: &Server) {
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    for n in 0..50 {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::try_from(format!("/made.Up/Method{n}")).unwrap();
        let codec = tonic_prost::ProstCodec::<SubmitRequest, SubmitRequest>::default();
        let request = tonic::Request::new(SubmitRequest::default());
        assert!(grpc.unary(request, path, codec).await.is_err());
        assert_eq!(server.get(&format!("/made-up/{n}")).0, 404);
    }
    let other = r#"remuda_grpc_requests_total{code="UNIMPLEMENTED",method="other"}"#;
    eventually("them to be counted", || (server.metric(other) as usize == 50).then_some(()));
}
