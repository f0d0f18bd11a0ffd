//! The choice of the kind for a query, and `reject_if_busy`.

use remuda::api::proto::{Query, SubmitRequest, SubmitResponse};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::harness::{Client, Server, eventually_async, fake_kind, query, run, tells_worker, waits_for};

fn wants(query_type: &str, capabilities: &[&str]) -> Query {
    Query {
        r#type: query_type.to_owned(),
        capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
        ..query(&json!(1))
    }
}

async fn submit(client: &mut Client, id: &str, query: Query) -> Result<SubmitResponse, Status> {
    let request = SubmitRequest { query_id: id.to_owned(), query: Some(query) };
    Ok(client.pool.submit(request).await?.into_inner())
}

/// The kind that a query went to.
async fn kind_of(client: &mut Client, query: Query) -> String {
    submit(client, "", query).await.expect("some kind takes it").kind
}

#[track_caller]
fn assert_invalid(refused: &Status, field: &str, parts: &[&str]) {
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let details = refused.get_error_details();
    assert_eq!(details.bad_request().expect("it names the field").field_violations[0].field, field);
    for part in parts {
        assert!(refused.message().contains(part), "{part:?} is missing in: {}", refused.message());
    }
}

#[tokio::test]
async fn kind_is_found_by_name_or_by_type_and_the_rest_goes_to_the_catch_all() {
    let kinds = [
        fake_kind("alpha", &[], "types = [\"a\", \"aa\"]"),
        fake_kind("beta", &[], "types = [\"b\"]"),
        fake_kind("rest", &[], ""),
    ];
    let server = Server::start(&kinds.concat());
    let mut client = server.client().await;
    let named = Query { kind: "beta".to_owned(), ..query(&json!(1)) };
    assert_eq!(kind_of(&mut client, named).await, "beta");
    for (query_type, kind) in [("a", "alpha"), ("aa", "alpha"), ("b", "beta"), ("c", "rest")] {
        assert_eq!(kind_of(&mut client, wants(query_type, &[])).await, kind);
    }
    let all = "alpha (types a, aa), beta (types b), rest";
    let refused = client.submit(Query { kind: "gamma".to_owned(), ..query(&json!(1)) }).await.unwrap_err();
    assert_invalid(&refused, "query.kind", &["\"gamma\"", all]);
    let refused = client.submit(query(&json!(1))).await.unwrap_err();
    assert_invalid(&refused, "query.kind", &["names neither kind nor type", all]);
    let (code, _, err) = run(&server, &["run", "--kind", "gamma", "1"]);
    assert!(code == 2 && err.contains(all), "{code} {err}");
}

#[tokio::test]
async fn unserved_type_is_refused_with_the_list_of_served_ones() {
    let kinds = [fake_kind("alpha", &[], "types = [\"a\"]"), fake_kind("beta", &[], "types = [\"b\"]")];
    let server = Server::start(&kinds.concat());
    let mut client = server.client().await;
    let refused = client.submit(wants("c", &[])).await.unwrap_err();
    assert_invalid(&refused, "query.type", &["no kind serves the type \"c\"", "alpha (types a), beta (types b)"]);
}

#[tokio::test]
async fn capabilities_come_from_the_config_and_from_workers() {
    let ready = |told: &str| format!(r#"["connect",{{"ready":{{"capabilities":{told}}}}}]"#);
    let kinds = [
        fake_kind("small", &[], "capabilities = [\"text\"]\nmin = 1"),
        fake_kind("large", &[], "capabilities = [\"text\", \"long\"]\nmin = 1"),
        fake_kind("told", &["--start", &ready(r#"["vision","speech"]"#)], "capabilities = [\"text\"]\nmin = 1"),
    ];
    let server = Server::start(&kinds.concat());
    let mut client = server.client().await;
    client.all_free(3).await;
    eventually_async("the capabilities of the worker to be known", || {
        let mut client = client.clone();
        async move { client.submit(wants("", &["vision"])).await.ok() }
    })
    .await;
    assert_eq!(kind_of(&mut client, wants("", &["long"])).await, "large");
    assert_eq!(kind_of(&mut client, wants("", &["vision"])).await, "told");
    assert_eq!(kind_of(&mut client, wants("any", &["text", "speech"])).await, "told");
    let named = Query { kind: "told".to_owned(), ..wants("", &["long"]) };
    let refused = client.submit(named).await.unwrap_err();
    let known = "small (capabilities text), large (capabilities long, text), told (capabilities speech, text, vision)";
    assert_invalid(&refused, "query.capabilities", &["no kind told can do all of: long", known]);
    let refused = client.submit(wants("", &["vision", "long"])).await.unwrap_err();
    assert_invalid(&refused, "query.capabilities", &["no kind can do all of: vision, long", known]);
    let (code, out, _) = run(&server, &["run", "--capability", "vision", "1"]);
    assert_eq!((code, out.as_str()), (0, "1\n{\"echo\": 1}\n"));
}

#[tokio::test]
async fn capabilities_count_only_if_all_workers_of_a_kind_have_them() {
    let script =
        r#"["connect",{"if_worker":[2,[{"ready":{"capabilities":["b","c"]}}]]},{"ready":{"capabilities":["a","b"]}}]"#;
    let server = Server::start(&fake_kind("k", &["--start", script], "min = 1\nmax = 2"));
    let mut client = server.client().await;
    client.all_free(1).await;
    eventually_async("the capabilities of the first worker to be known", || {
        let mut client = client.clone();
        async move { client.submit(wants("", &["a", "b"])).await.ok() }
    })
    .await;
    assert_eq!(run(&server, &["scale", "k", "2"]).0, 0);
    client.all_free(2).await;
    let refused = eventually_async("what only one of them can do to be refused", || {
        let mut client = client.clone();
        async move { client.submit(wants("", &["a"])).await.err() }
    })
    .await;
    assert_invalid(&refused, "query.capabilities", &["k (capabilities b)"]);
    assert_eq!(kind_of(&mut client, wants("", &["b"])).await, "k");
    // Worker 2 goes, and what it could not do can be done again.
    assert_eq!(run(&server, &["scale", "k", "1"]).0, 0);
    let left = client.all_free(1).await;
    let able = if left == [1] { "a" } else { "c" };
    eventually_async("the rest to be known again", || {
        let mut client = client.clone();
        async move { client.submit(wants("", &[able])).await.ok() }
    })
    .await;
}

#[tokio::test]
async fn kind_with_the_shortest_wait_gets_the_query() {
    let kinds = [
        fake_kind("first", &[], "capabilities = [\"x\"]\nmin = 1\nmax = 1"),
        fake_kind("second", &[], "capabilities = [\"x\"]\nmin = 1\nmax = 1"),
    ];
    let server = Server::start(&kinds.concat());
    let mut client = server.client().await;
    client.all_free(2).await;
    let endless = |capable: &[&str]| Query { payload: waits_for(&server.gate("a")).to_string(), ..wants("", capable) };
    assert_eq!(kind_of(&mut client, endless(&["x"])).await, "first", "both are free");
    assert_eq!(kind_of(&mut client, endless(&["x"])).await, "second", "the other one is");
    let line: Vec<String> = [
        submit(&mut client, "one", endless(&["x"])).await.unwrap(),
        submit(&mut client, "two", endless(&["x"])).await.unwrap(),
        submit(&mut client, "three", endless(&["x"])).await.unwrap(),
    ]
    .map(|accepted| accepted.kind)
    .into();
    assert_eq!(line, ["first", "second", "first"], "the shorter line each time");
    // The same again is the same query, wherever it would go now.
    for (id, kind) in [("one", "first"), ("two", "second"), ("three", "first")] {
        let again = submit(&mut client, id, endless(&["x"])).await.unwrap();
        assert_eq!((again.kind.as_str(), again.existed), (kind, true), "{id}");
    }
}

#[tokio::test]
async fn reject_if_busy_query_is_refused_without_a_trace() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    client.all_free(1).await;
    let gate = server.gate("a");
    let (running, worker) = client.occupy(&gate).await;
    let hasty = || Query { reject_if_busy: true, ..query(&tells_worker()) };
    let refused = submit(&mut client, "hasty", hasty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let text = "no worker of kind k is ready, and the query asked not to wait (reject_if_busy)";
    assert_eq!(refused.message(), text);
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "BUSY");
    assert!(details.retry_info().is_some());
    let (code, _, err) = run(&server, &["run", "--reject-if-busy", "1"]);
    assert!(code == 4 && err.contains(text), "{code} {err}");
    assert_eq!(run(&server, &["queries", "hasty"]).0, 1, "it left no trace");
    std::fs::write(&gate, "").unwrap();
    client.read_all(&running).await;
    let ended = eventually_async("the same query to be taken", || {
        let mut client = client.clone();
        async move { client.execute_as("hasty", hasty()).await.ok() }
    })
    .await;
    assert_eq!(ended.result()["worker"], worker);
    let again = submit(&mut client, "hasty", hasty()).await.unwrap();
    assert!(again.existed, "one that is here already needs no worker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reject_if_busy_queries_leave_no_worker_reserved() {
    let kind = fake_kind("k", &[], "min = 2\nmax = 2");
    let server = Server::start(&format!("{kind}[queue]\nmax_queries = 1\n"));
    let mut client = server.client().await;
    client.all_free(2).await;
    let mut clients = Vec::new();
    for number in 0..8 {
        let mut client = server.client().await;
        clients.push(tokio::spawn(async move {
            let (mut done, mut refused) = (0, 0);
            for turn in 0..40 {
                // Every other one is a repetition, or has the id of another query.
                let id = format!("{}-{}", number / 2, turn / 2);
                let query = Query { reject_if_busy: true, ..query(&json!(turn % 4)) };
                match client.execute_as(&id, query).await {
                    Ok(_) => done += 1,
                    Err(status) => {
                        let expected = matches!(status.code(), Code::ResourceExhausted | Code::AlreadyExists);
                        assert!(expected, "{status}");
                        refused += 1;
                    }
                }
            }
            (done, refused)
        }));
    }
    let (mut done, mut refused) = (0, 0);
    for client in clients {
        let counts = client.await.unwrap();
        (done, refused) = (done + counts.0, refused + counts.1);
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    let mut both = client.all_free(2).await;
    let mut had = vec![client.occupy(&server.gate("a")).await.1, client.occupy(&server.gate("b")).await.1];
    both.sort_unstable();
    had.sort_unstable();
    assert_eq!(had, both, "both can still be had");
}
