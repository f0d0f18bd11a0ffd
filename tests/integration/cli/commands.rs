//! The commands of users: their output and their exit codes.

use std::{io::Write, process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Server, eventually, fake_kind, finish_within, output_of, remuda, run, send_signal};

fn server() -> Server {
    Server::start(&fake_kind("k", &[], "min = 1\nmax = 1\ntypes = [\"t\"]"))
}

/// Runs the command without a server.
fn alone(arguments: &[&str]) -> (i32, String, String) {
    output_of(&remuda().args(arguments).output().expect("the command runs"))
}

#[tokio::test]
async fn run_prints_messages_and_result_as_lines() {
    let server = server();
    let payload = r#"{"steps":[{"message":{"n":1}},{"message":"two"},{"complete":{"done":true}}]}"#;
    assert_eq!(run(&server, &["run", payload]), (0, "{\"n\":1}\n\"two\"\n{\"done\":true}\n".to_owned(), String::new()));
    let (code, events, _) = run(&server, &["run", "--events", payload]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, events.len()), (0, 3));
    assert_eq!(
        (&events[0]["type"], &events[0]["sequence"], &events[0]["attempt"]),
        (&json!("message"), &json!(0), &json!(1))
    );
    assert_eq!(events[2]["result"], json!({"done": true}));
}

#[tokio::test]
async fn payload_comes_from_an_argument_a_file_or_stdin() {
    let server = server();
    let file = server.dir.path().join("payload.json");
    std::fs::write(&file, "{\"from\":\n \"file\"}").unwrap();
    let (code, out, _) = run(&server, &["run", &format!("@{}", file.display())]);
    // White space of the payload comes back as it is, but a line stays a line.
    assert_eq!((code, out.lines().last().unwrap()), (0, r#"{"echo": {"from":  "file"}}"#));
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc, "run", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1]").unwrap();
    let (code, out, _) = output_of(&child.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (0, "[1]\n{\"echo\": [1]}\n"));
    let (code, _, err) = run(&server, &["run", "@/no/such/file"]);
    assert!(code == 2 && err.contains("/no/such/file"), "{code} {err}");
}

#[tokio::test]
async fn endings_have_their_exit_codes_and_texts() {
    let server = server();
    let (code, out, err) = run(&server, &["run", r#"{"steps":[{"message":1},{"error":{"error":"no such model"}}]}"#]);
    assert_eq!((code, out.as_str()), (1, "1\n"));
    assert!(err.contains(" failed: no such model"), "{err}");
    let (code, _, err) = run(&server, &["run", r#"{"steps":[{"exit":3}]}"#]);
    assert!(code == 1 && err.contains("(k) exited with code 3 after "), "{code} {err}");
    let (code, _, err) = run(&server, &["run", "not json"]);
    assert!(code == 2 && err.contains("the payload is not JSON"), "{code} {err}");
    let (code, _, err) = run(&server, &["run", "--kind", "x", "1"]);
    assert!(
        code == 2 && err.contains("query.kind: there is no kind \"x\"; this pool has: k (types t)"),
        "{code} {err}"
    );
    let (code, _, err) = run(&server, &["run", "--nonsense"]);
    assert!(code == 2 && err.contains("--nonsense"), "{code} {err}");
    let (code, _, err) = run(&server, &["run", "--timeout", "50ms", r#"{"steps":["hang"]}"#]);
    assert!(code == 1 && err.contains("ran longer than its timeout of 50ms"), "{code} {err}");
    let (code, _, err) = alone(&["--endpoint", "127.0.0.1:1", "run", "1"]);
    assert_eq!(code, 5);
    assert!(
        err.contains(
            "cannot reach remuda at http://127.0.0.1:1: connection refused; is it running? start it with: remuda serve"
        ),
        "{err}"
    );
    let (code, _, err) = alone(&["--endpoint", "localhost", "health"]);
    assert!(code == 2 && err.contains("it names no port"), "{code} {err}");
    // A wrong endpoint in the environment concerns only those who need one.
    assert!(remuda().args(["config", "example"]).env("REMUDA_ENDPOINT", "nonsense").output().unwrap().status.success());
    let (code, _, err) = run(&server, &["stream", "nobody"]);
    assert!(code == 1 && err.contains("query nobody is not known"), "{code} {err}");
}

#[tokio::test]
async fn submit_stream_and_cancel_go_together() {
    let server = server();
    let (code, id, _) = run(&server, &["submit", "--type", "t", r#"{"steps":[{"message":1},{"message":2},"hang"]}"#]);
    assert_eq!(code, 0);
    let id = id.trim();
    eventually("the query to stream", || run(&server, &["queries", id]).1.contains("streaming").then_some(()));
    let (code, _, _) = run(&server, &["cancel", id, "--reason", "enough"]);
    assert_eq!(code, 0);
    let (code, out, err) = run(&server, &["stream", id, "--from", "1"]);
    assert_eq!((code, out.as_str()), (3, "2\n"));
    assert!(err.contains("was cancelled: enough"), "{err}");
    let (code, _, err) = run(&server, &["cancel", "nobody"]);
    assert!(code == 1 && err.contains("query nobody is not known"), "{code} {err}");
}

#[tokio::test]
async fn rejected_query_exits_with_four() {
    let server = server();
    let (_, blocker, _) = run(&server, &["submit", r#"{"steps":["hang"]}"#]);
    eventually("the worker to be busy", || {
        run(&server, &["queries", blocker.trim()]).1.contains("processing").then_some(())
    });
    let (code, _, err) = run(&server, &["run", "--queue-timeout", "50ms", "1"]);
    assert!(code == 4 && err.contains("no worker of kind k was free within"), "{code} {err}");
}

#[tokio::test]
async fn ctrl_c_cancels_the_query() {
    let server = server();
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc, "run", "--id", "mine", r#"{"steps":["hang"]}"#]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the query to run", || run(&server, &["queries", "mine"]).1.contains("processing").then_some(()));
    send_signal(child.id(), Signal::SIGINT);
    let (code, _, err) = output_of(&child.wait_with_output().unwrap());
    assert!(code == 3 && err.contains("cancel"), "{code} {err}");
    eventually("the query to be cancelled", || {
        run(&server, &["queries", "mine"]).1.contains("cancelled").then_some(())
    });
}

#[tokio::test]
async fn tables_are_for_people_and_json_for_programs() {
    let server = server();
    run(&server, &["run", "--id", "q-1", "--owner", "me", "1"]);
    let (_, table, _) = run(&server, &["workers"]);
    assert!(table.starts_with("ID  KIND  STATE"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour without a terminal");
    let lines = |text: &str| text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    let workers = lines(&run(&server, &["workers", "--json"]).1);
    assert_eq!((&workers[0]["worker_id"], &workers[0]["kind"]), (&json!(1), &json!("k")));
    let (_, table, _) = run(&server, &["queries"]);
    assert!(table.lines().nth(1).unwrap().starts_with("q-1  complete  k"), "{table}");
    let queries = lines(&run(&server, &["queries", "--json", "--state", "complete"]).1);
    assert_eq!((&queries[0]["query_id"], &queries[0]["owner"]), (&json!("q-1"), &json!("me")));
    assert!(run(&server, &["queries", "--json", "--state", "error"]).1.is_empty());
    let (code, health, _) = run(&server, &["health", "--json"]);
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!((code, &health["serving"]), (0, &json!(true)));
    let (code, details, _) = run(&server, &["workers", "1"]);
    assert!(code == 0 && details.contains("loading     ready       ready"), "{details}");
    let (code, _, err) = run(&server, &["workers", "99"]);
    assert!(code == 1 && err.contains("worker 99 is not known"), "{err}");
}

#[tokio::test]
async fn health_is_fit_for_a_container() {
    let server = Server::start("[kinds.k]\ncommand = [\"no-such-program-anywhere\"]\n");
    eventually("the start to fail", || {
        let (code, out, err) = run(&server, &["health"]);
        (code == 1 && format!("{out}{err}").contains("was not found")).then_some(())
    });
    assert_eq!(run(&server, &["health", "--quiet"]), (1, String::new(), String::new()));
    assert_eq!(alone(&["--endpoint", "127.0.0.1:1", "health", "--quiet"]).0, 5);
    assert_eq!(run(&server, &["health", "--kind", "k"]).0, 1);
    let (code, _, err) = run(&server, &["health", "--kind", "nothing"]);
    assert!(code == 1 && err.contains("there is no kind \"nothing\""), "{err}");
    // One that accepts and says nothing must not hold up a probe.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    let mut probe = remuda();
    probe.args(["--endpoint", &endpoint, "health", "--timeout", "200ms"]);
    let probe = probe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (code, _, err) = finish_within(Duration::from_secs(2), probe);
    assert!(code == 5 && err.contains("no answer within 200ms (--timeout)"), "{code} {err}");
}

#[test]
fn config_check_tells_every_mistake_at_once_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, "[pool]\nmax_worker = 3\n[kinds.k]\ncommand = []\ntimeout = 30\n").unwrap();
    let (code, _, err) = alone(&["config", "check", &file.display().to_string()]);
    assert_eq!(code, 2, "{err}");
    for part in ["bad.toml:2:1", "max_workers", "bad.toml:4:", "command", "bad.toml:5:", "30s", "3 mistakes"] {
        assert!(err.contains(part), "{part:?} is missing in: {err}");
    }
    let (code, _, err) = alone(&["serve", "--config", &file.display().to_string()]);
    assert!(code == 2 && err.contains("bad.toml:2:1"), "{code} {err}");
    std::fs::write(&file, "[kinds.k]\ncommand = [\"x\"]\n").unwrap();
    assert_eq!(alone(&["config", "check", &file.display().to_string()]).0, 0);
    let (code, _, err) = alone(&["config", "check", "/no/such/file.toml"]);
    assert!(code == 2 && err.contains("/no/such/file.toml"), "{code} {err}");
}

#[test]
fn config_show_and_example_can_be_used_as_configs() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [["config", "show"], ["config", "example"]] {
        let (code, text, _) = alone(&arguments);
        assert!(code == 0 && text.contains("# "), "it is commented: {text}");
        let file = dir.path().join("shown.toml");
        std::fs::write(&file, &text).unwrap();
        let (code, _, err) = alone(&["config", "check", &file.display().to_string()]);
        assert_eq!(code, 0, "{arguments:?}: {err}");
    }
    let output = remuda().args(["config", "show"]).env("REMUDA__POOL__MAX_WORKERS", "33").output().unwrap();
    assert!(output_of(&output).1.contains("max_workers = 33"));
}

#[test]
fn address_in_use_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = alone(&["serve", "--listen", &address, "--http", "off"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(&format!("cannot listen for gRPC on {address}: ")), "{err}");
    assert!(err.contains("is another remuda running? choose another address with --listen and --http"), "{err}");
}

#[test]
fn help_and_completions_teach() {
    let (code, text, _) = alone(&["--help"]);
    assert!(code == 0 && text.contains("remuda serve") && text.contains("Exit codes:"), "{text}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, text, _) = alone(&["completions", shell]);
        assert!(code == 0 && text.contains("remuda"), "{shell}");
    }
    let (code, _, err) = alone(&["worker", "echo"]);
    assert!(code == 2 && err.contains("REMUDA_SOCKET"), "{code} {err}");
}

#[tokio::test]
async fn built_in_worker_serves_without_a_config_over_a_unix_socket_too() {
    let dir = tempfile::Builder::new().prefix("rt").tempdir().unwrap();
    let socket = dir.path().join("g.sock").display().to_string();
    let mut command = remuda();
    command.args(["serve", "--listen", &socket, "--http", "off"]).current_dir(dir.path());
    command.env("REMUDA__POOL__SOCKET_DIR", dir.path());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let endpoint = format!("unix:{socket}");
    eventually("the server to serve", || (alone(&["--endpoint", &endpoint, "health", "--quiet"]).0 == 0).then_some(()));
    let (code, out, _) = alone(&["--endpoint", &endpoint, "run", r#"{"hello":"world"}"#]);
    assert_eq!((code, out.as_str()), (0, "{\"hello\":\"world\"}\n{\"echo\":{\"hello\":\"world\"}}\n"));
    assert_eq!(alone(&["--endpoint", &endpoint, "run", r#"{"stream":3}"#]).1.lines().count(), 4);
    assert_eq!(alone(&["--endpoint", &endpoint, "run", r#"{"fail":"no"}"#]).0, 1);
    let (code, _, err) = alone(&["--endpoint", &endpoint, "run", r#"{"crash":true}"#]);
    assert!(code == 1 && err.contains("exited with code 1"), "{err}");
    send_signal(child.id(), Signal::SIGTERM);
    assert_eq!(eventually("the server to end", || child.try_wait().unwrap()).code(), Some(0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}
