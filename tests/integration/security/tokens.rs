//! Tokens: without one nothing goes, with one what its roles say, on every method there is.

use remuda::api::proto::{DrainPoolRequest, WatchEventsRequest, pool_admin_client::PoolAdminClient};
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Request, transport::Channel};

use super::{HTTP_PATHS, all_methods, call, is_refusal};
use crate::harness::{DEADLINE, Server, eventually, fake_kind, output_of, remuda};

const SUBMIT: &str = "submit-0123456789";
const READ: &str = "read-0123456789abc";
const ADMIN: &str = "admin-0123456789ab";

fn protected(settings: &str) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    std::fs::write(&file, format!("ci submit {SUBMIT}\nlook read {READ}\nops admin {ADMIN}\n")).unwrap();
    let server = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ntokens = {:?}\n{settings}",
        file.display().to_string()
    );
    (Server::start(&format!("{server}{}", fake_kind("k", &[], "min = 1"))), dir)
}

async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn methods_are_refused_without_a_token_or_with_a_wrong_one() {
    let (server, _dir) = protected("");
    let channel = channel(&server).await;
    for method in all_methods() {
        assert_eq!(call(&channel, &method, None).await, Code::Unauthenticated, "{method} without a token");
        assert_eq!(call(&channel, &method, Some("admin-0123456789aX")).await, Code::Unauthenticated, "{method}");
    }
    assert_eq!(call(&channel, "/remuda.v1.Other/Method", None).await, Code::Unauthenticated);
}

#[tokio::test]
async fn token_opens_the_methods_of_its_roles_and_no_others() {
    let (server, _dir) = protected("");
    let channel = channel(&server).await;
    let changes = ["Scale", "Restart", "Evict", "Drain", "Resume", "Reload", "Requeue", "Purge"];
    for method in all_methods() {
        let name = method.rsplit('/').next().unwrap();
        let admin_only = method.contains("PoolAdmin") && changes.iter().any(|change| name.starts_with(change));
        let looks = method.contains("PoolAdmin") && !admin_only;
        let runs = ["Submit", "Execute", "Cancel"].contains(&name);
        let expected = [(SUBMIT, !admin_only && !looks), (READ, !admin_only && !runs), (ADMIN, true)];
        for (token, allowed) in expected {
            let code = call(&channel, &method, Some(token)).await;
            let role = token.split('-').next().unwrap();
            assert_eq!(!is_refusal(code), allowed, "{method} with the role {role}: {code:?}");
            assert!(allowed || code == Code::PermissionDenied, "{method} with the role {role}: {code:?}");
        }
    }
}

#[tokio::test]
async fn http_paths_need_a_token_that_may_read_unless_configured_open() {
    let (server, dir) = protected("");
    let reading = format!("Authorization: Bearer {READ}");
    eventually("the worker to be ready", || (server.get_with("/readyz", &[&reading]).0 == 200).then_some(()));
    for path in HTTP_PATHS {
        assert_eq!(server.get(path).0, 401, "{path} without a token");
        assert_eq!(server.get_with(path, &["Authorization: Bearer admin-0123456789aX"]).0, 401, "{path}");
        assert_eq!(server.get_with(path, &[&format!("Authorization: Bearer {SUBMIT}")]).0, 403, "{path}");
        let code = server.get_with(path, &[&reading]).0;
        assert_eq!(code, if path == "/other" { 404 } else { 200 }, "{path}");
    }
    drop((server, dir));
    let (server, _dir) = protected("http_open_paths = [\"/livez\", \"/readyz\"]\n");
    assert_eq!((server.get("/livez").0, server.get("/metrics").0), (200, 401));
}

#[tokio::test]
async fn command_line_sends_a_token_from_a_file() {
    let (server, dir) = protected("");
    let file = dir.path().join("mine");
    std::fs::write(&file, format!("{SUBMIT}\n")).unwrap();
    let run = |with_token: bool, arguments: &[&str]| {
        let mut command = remuda();
        command.args(["--endpoint", &server.grpc]);
        if with_token {
            command.arg("--token-file").arg(&file);
        }
        output_of(&command.args(arguments).output().unwrap())
    };
    let (code, stdout, stderr) = run(true, &["run", &json!({"a": 1}).to_string()]);
    assert!(code == 0 && stdout.ends_with("{\"echo\": {\"a\":1}}\n"), "{stdout}{stderr}");
    let (code, _, stderr) = run(false, &["run", "1"]);
    assert!(code != 0 && stderr.contains("needs a token") && stderr.contains("--token-file"), "{stderr}");
    let (code, _, stderr) = run(true, &["drain"]);
    assert!(code != 0 && stderr.contains("admin"), "{stderr}");
}

#[tokio::test]
async fn changed_token_file_holds_without_a_restart_and_a_broken_one_changes_nothing() {
    let (server, dir) = protected("");
    let channel = channel(&server).await;
    let file = dir.path().join("tokens");
    std::fs::write(&file, "broken\n").unwrap();
    server.signal(nix::sys::signal::Signal::SIGHUP);
    eventually("the broken file to be noticed", || {
        server.log().iter().any(|line| line.contains("token reload failed, keeping the current ones")).then_some(())
    });
    assert_eq!(call(&channel, "/remuda.v1.WorkerPool/Health", Some(READ)).await, Code::Ok);
    std::fs::write(&file, "new read another-0123456789\n").unwrap();
    server.signal(nix::sys::signal::Signal::SIGHUP);
    eventually("the new tokens to hold", || {
        server.log().iter().any(|line| line.contains("tokens reloaded")).then_some(())
    });
    assert_eq!(call(&channel, "/remuda.v1.WorkerPool/Health", Some(READ)).await, Code::Unauthenticated);
    assert_eq!(call(&channel, "/remuda.v1.WorkerPool/Health", Some("another-0123456789")).await, Code::Ok);
    assert!(!server.log().iter().any(|line| line.contains("0123456789")), "a token is in the log");
}

fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

#[tokio::test]
async fn removed_token_opens_nothing_more_and_open_calls_go_on() {
    let (server, dir) = protected("");
    let channel = channel(&server).await;
    let mut admin = PoolAdminClient::new(channel.clone());
    let watch = with_token(READ, WatchEventsRequest::default());
    let mut opened = admin.watch_events(watch).await.unwrap().into_inner();
    std::fs::write(dir.path().join("tokens"), format!("ops admin {ADMIN}\n")).unwrap();
    server.signal(nix::sys::signal::Signal::SIGHUP);
    eventually("the token to be gone", || {
        server.log().iter().any(|line| line.contains("tokens reloaded")).then_some(())
    });
    let again = admin.watch_events(with_token(READ, WatchEventsRequest::default())).await;
    assert_eq!(again.unwrap_err().code(), Code::Unauthenticated, "the same connection, the next call");
    admin.drain_pool(with_token(ADMIN, DrainPoolRequest::default())).await.unwrap();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|name| name != "pool:drained") {
        let told =
            timeout(DEADLINE, opened.message()).await.unwrap_or_else(|_| panic!("the stream is silent: {seen:?}"));
        seen.push(told.unwrap().expect("the stream goes on").event.unwrap().name);
    }
}
