//! Workers that do not start or break the protocol: the cause, and the text for people.

use std::{fs, os::unix::fs::PermissionsExt};

use remuda::api::proto::{DeathCause, DeathCertificate, ErrorReason};
use serde_json::{Value, json};

use crate::harness::{Server, eventually, eventually_async, fake_kind, query};

/// The first reason of `/readyz` once a start has failed.
fn reason_not_ready(server: &Server) -> String {
    eventually("the failed start to be known", || {
        let (code, body) = server.get("/readyz");
        let body: Value = serde_json::from_str(&body).unwrap();
        let reason = body["reasons"][0].as_str().unwrap_or_default().to_owned();
        (code == 503 && reason.contains("failed;")).then_some(reason)
    })
}

/// The certificate of the first worker.
async fn first_certificate(server: &Server) -> DeathCertificate {
    let client = server.client().await;
    eventually_async("worker 1 to end", || {
        let mut client = client.clone();
        async move {
            let request = remuda::api::proto::GetWorkerRequest { worker_id: 1 };
            client.admin.get_worker(request).await.ok()?.into_inner().certificate
        }
    })
    .await
}

/// Starts a server whose kind `k` cannot start, and checks cause and text.
async fn start_failure(config: &str, cause: DeathCause, text: &str) {
    let server = Server::start(config);
    let certificate = first_certificate(&server).await;
    assert_eq!(certificate.cause(), cause, "{certificate:?}");
    assert!(certificate.summary.contains(text), "{:?} does not say {text:?}", certificate.summary);
    let reason = reason_not_ready(&server);
    assert!(reason.starts_with("kind k has no worker: the last "), "{reason}");
    assert!(!reason.contains("remuda-launch"), "{reason}");
    assert!(reason.contains(text), "{reason:?} does not say {text:?}");
    let workers = server.worker_pids();
    assert!(workers.len() <= 1, "at most one start is tried at a time: {workers:?}");
}

const QUICK: &str = "min = 1\nmax = 1\nconnect_timeout = \"1s\"\nstart_timeout = \"1200ms\"\nterm_grace = \"100ms\"";

#[tokio::test]
async fn missing_command_is_not_found() {
    let config = "[kinds.k]\ncommand = [\"no-such-program-anywhere\"]\n";
    let text = "could not be started: the command \"no-such-program-anywhere\" was not found; check the kind's command, dir and PATH";
    start_failure(config, DeathCause::StartFailed, text).await;
}

#[tokio::test]
async fn file_without_the_permission_is_not_executable() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("worker");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.display().to_string();
    let text = format!(
        "could not be started: {path:?} is not executable (Permission denied (os error 13)); check its permissions and format"
    );
    start_failure(&format!("[kinds.k]\ncommand = [{path:?}]\n"), DeathCause::StartFailed, &text).await;
}

#[tokio::test]
async fn script_without_its_interpreter_blames_the_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("worker");
    fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = file.display().to_string();
    let text = format!("the interpreter named in the first line of {path:?} was not found");
    start_failure(&format!("[kinds.k]\ncommand = [{path:?}]\n"), DeathCause::StartFailed, &text).await;
}

#[tokio::test]
async fn missing_directory_and_an_unknown_user_are_named() {
    let config = "[kinds.k]\ncommand = [\"true\"]\ndir = \"/no/such/directory\"\n";
    start_failure(config, DeathCause::StartFailed, "cannot enter its directory: No such file or directory").await;
    let config = "[kinds.k]\ncommand = [\"true\"]\nuser = \"nobody-of-that-name\"\n";
    let text = "cannot become its user: there is no user \"nobody-of-that-name\" on this machine";
    start_failure(config, DeathCause::StartFailed, text).await;
}

#[tokio::test]
async fn early_exit_reports_code_signal_and_last_output() {
    let early = r#"[{"stderr":"weights not found"},{"exit":7}]"#;
    let text = "exited with code 7 before it connected; it had lived ";
    start_failure(&fake_kind("k", &["--start", early], QUICK), DeathCause::StartFailed, text).await;
    let words = "its last words: weights not found";
    start_failure(&fake_kind("k", &["--start", early], QUICK), DeathCause::StartFailed, words).await;
    let killed = r#"["connect",{"signal":"KILL"}]"#;
    let text = "was killed by SIGKILL before it was ready; it had lived ";
    start_failure(&fake_kind("k", &["--start", killed], QUICK), DeathCause::StartFailed, text).await;
}

#[tokio::test]
async fn never_connecting_and_never_being_ready_have_causes_of_their_own() {
    let text = "did not connect to the socket in REMUDA_SOCKET within 1.0 s (connect_timeout)";
    start_failure(&fake_kind("k", &["--start", r#"["hang"]"#], QUICK), DeathCause::StartTimeout, text).await;
    let text = "connected but did not say ready within 1.2 s (start_timeout)";
    start_failure(&fake_kind("k", &["--start", r#"["connect","hang"]"#], QUICK), DeathCause::StartTimeout, text).await;
}

#[tokio::test]
async fn connection_from_outside_the_process_group_is_refused() {
    let text = "which is outside its process group, tried to and was refused; a worker must not daemonize";
    let config = fake_kind("k", &["--start", r#"["connect_from_outside","hang"]"#], QUICK);
    start_failure(&config, DeathCause::StartTimeout, text).await;
}

#[tokio::test]
async fn broken_greeting_is_a_protocol_error() {
    for (start, text) in [
        (r#"["connect",{"raw":"hello"}]"#, "broke the protocol: invalid JSON at column 1"),
        (r#"["connect","heartbeat"]"#, "heartbeat"),
        (r#"["connect",{"ready":{"protocol":9}}]"#, "9"),
    ] {
        let server = Server::start(&fake_kind("k", &["--start", start], QUICK));
        let certificate = first_certificate(&server).await;
        assert_eq!(certificate.cause(), DeathCause::ProtocolError, "{certificate:?}");
        assert!(certificate.summary.contains(text), "{}", certificate.summary);
    }
}

#[tokio::test]
async fn malformed_frames_are_quoted_and_end_the_query_with_their_reason() {
    let settings = "min = 1\nmax = 1\nterm_grace = \"100ms\"\nmax_line_bytes = \"1KiB\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    let cases: Vec<(Value, &str)> = vec![
        (json!({"raw": "this is not json"}), "this is not json"),
        (json!({"raw": "[1,2]"}), "[1,2]"),
        (json!({"raw": "{\"requestId\":\"x\"}"}), "{\"requestId\":\"x\"}"),
        (json!({"raw": "{\"type\":\"mesage\"}"}), "unknown frame type \"mesage\""),
        (json!({"raw": "{\"type\":\"message\",\"requestId\":\"1-1\"}"}), "content"),
        (json!({"raw": "{\"type\":\"complete\",\"requestId\":7}"}), "requestId"),
        (json!({"raw_hex": "7b22ff227d0a"}), "UTF-8"),
        (json!({"long_line": 5_000}), "1024"),
        (json!("second_ready"), "ready"),
    ];
    for (step, text) in cases {
        let ended = client.execute(query(&json!({"steps": [step, "hang"]}))).await;
        let error = ended.error();
        assert_eq!(error.reason(), ErrorReason::WorkerDied);
        assert!(error.message.contains(" broke the protocol: "), "{}", error.message);
        assert!(error.message.contains(text), "{:?} does not say {text:?}", error.message);
        assert_eq!(error.certificate.expect("a certificate").cause(), DeathCause::ProtocolError);
    }
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
}

#[tokio::test]
async fn half_a_line_and_a_closed_socket_have_causes_of_their_own() {
    let settings = "min = 1\nmax = 1\nterm_grace = \"100ms\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    let half = client.execute(query(&json!({"steps": ["half_line", {"exit": 4}]}))).await.error();
    let certificate = half.certificate.expect("a certificate");
    assert_eq!((certificate.cause(), certificate.exit_code), (DeathCause::Crash, Some(4)));
    assert!(certificate.summary.contains("exited with code 4; "), "{}", certificate.summary);
    assert!(certificate.summary.contains("{\"type\":\"mess"), "it quotes the half line: {}", certificate.summary);
    let closed = client.execute(query(&json!({"steps": ["close_socket", "hang_hard"]}))).await.error();
    assert!(closed.message.contains("closed its connection but lived on"), "{}", closed.message);
    assert_eq!(closed.certificate.expect("a certificate").cause(), DeathCause::Disconnected);
    let half = client.execute(query(&json!({"steps": ["half_line", "close_socket", "hang_hard"]}))).await.error();
    assert_eq!(half.certificate.expect("a certificate").cause(), DeathCause::ProtocolError);
}

#[tokio::test]
async fn late_frame_never_reaches_the_next_query() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    for step in ["stale", "message_after_complete", "two_completes"] {
        client.execute(query(&json!({"steps": [step, {"complete": step}]}))).await;
        let next = client.execute(query(&json!({"clean": step}))).await;
        assert_eq!(next.events.len(), 2, "{next:?}");
        assert_eq!(next.result(), json!({"echo": {"clean": step}}));
    }
    assert!(server.metric(r#"remuda_stale_frames_total{kind="k"}"#) >= 3.0);
    assert_eq!(client.workers().await[0].worker_id, 1);
}

#[tokio::test]
async fn other_kinds_serve_while_one_cannot_start() {
    let good = fake_kind("good", &[], "min = 1");
    let server = Server::start(&format!("{good}[kinds.bad]\ncommand = [\"no-such-program-anywhere\"]\n"));
    let mut client = server.client().await;
    let answer = client.execute(remuda::api::proto::Query { kind: "good".to_owned(), ..query(&json!(1)) }).await;
    assert_eq!(answer.result(), json!({"echo": 1}));
    let health = eventually_async("the bad kind to be known as bad", || {
        let mut client = client.clone();
        async move { Some(client.health().await).filter(|health| health.kinds[1].last_failure.is_some()) }
    })
    .await;
    assert!(health.serving);
    let bad = health.kinds.iter().find(|kind| kind.kind == "bad").unwrap();
    assert!(!bad.serving);
    assert_eq!(bad.last_failure.as_ref().expect("the reason").cause(), DeathCause::StartFailed);
}
