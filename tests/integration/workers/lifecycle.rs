//! Start and end of the server and its workers: the workers' environment, and nothing left behind.

use std::{collections::HashMap, time::Duration};

use nix::sys::signal::Signal;
use remuda::api::proto::QueryState;
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Gate, Server, TestEvent, alive, eventually, eventually_async, eventually_within, fake_kind, group_of, guardian_of,
    is_root, query, send_signal, was_cut_off, zombies_of,
};

fn all_ready(server: &Server, kind: &str, count: usize) {
    eventually("workers to be ready", || {
        let series = format!("remuda_workers{{kind=\"{kind}\",state=\"ready\"}}");
        (server.metric(&series) as usize == count).then_some(())
    });
}

#[tokio::test]
async fn killed_server_leaves_no_worker_behind() {
    let stubborn = r#"["ignore_term","connect","ready"]"#;
    let mut server = Server::start(&fake_kind("k", &["--start", stubborn], "min = 4"));
    all_ready(&server, "k", 4);
    let mut client = server.client().await;
    client.submit(query(&json!({"steps": ["hang_hard"]}))).await.unwrap();
    let workers = server.worker_pids();
    assert_eq!(workers.len(), 4);
    server.signal(Signal::SIGKILL);
    server.wait();
    eventually_within(Duration::from_secs(1), "the workers to die", || {
        workers.iter().all(|pid| !alive(*pid)).then_some(())
    });
    // What a killed server could not remove, the next one does.
    assert_eq!(server.leftovers().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_running_and_waiting_queries_end_and_exits_zero() {
    let mut server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let client = server.client().await;
    let gate = Gate::closed();
    let slow = json!({"steps": [{"message": 1}, {"await_file": gate.path()}, {"complete": "slow"}]});
    let running = tokio::spawn({
        let mut client = client.clone();
        async move { client.execute(query(&slow)).await }
    });
    eventually("the query to run", || {
        (server.metric(r#"remuda_queries{kind="k",state="streaming"}"#) as u32 == 1).then_some(())
    });
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.execute(query(&json!("waits"))).await }
    });
    eventually("the other to wait", || (server.metric(r#"remuda_queue_depth{kind="k"}"#) as u32 == 1).then_some(()));
    server.signal(Signal::SIGTERM);
    let refused = eventually_async("the server to refuse", || {
        let mut client = client.clone();
        // A call that is on its way when the connection closes ends as cancelled.
        async move { client.submit(query(&json!(1))).await.err().filter(|refused| !was_cut_off(refused)) }
    })
    .await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(server.get("/readyz").0, 503);
    assert_eq!(server.get("/livez").0, 200);
    gate.open();
    assert_eq!(running.await.unwrap().result(), json!("slow"));
    assert_eq!(waiting.await.unwrap().result(), json!({"echo": "waits"}));
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.leftovers().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_that_outlasts_the_drain_ends_in_an_error_and_the_exit_code_says_so() {
    // A quarter of the whole is kept for cleaning up, which a busy machine needs.
    let kind = fake_kind("k", &[], "min = 1\nmax = 1\ncancel_grace = \"1s\"\nterm_grace = \"1s\"");
    let mut server = Server::start(&format!("[pool]\ndrain_timeout = \"500ms\"\n{kind}"));
    let mut client = server.client().await;
    let endless = tokio::spawn({
        let mut client = client.clone();
        async move { client.execute(query(&json!({"steps": [{"message": 1}, "ignore_term", "hang_hard"]}))).await }
    });
    eventually("the query to run", || {
        (server.metric(r#"remuda_queries{kind="k",state="streaming"}"#) as u32 == 1).then_some(())
    });
    let waiting = client.submit(query(&json!(1))).await.unwrap();
    let waiting = client.follow(&waiting).await;
    server.signal(Signal::SIGTERM);
    let ended = endless.await.unwrap();
    assert_eq!(ended.last(), TestEvent::Error("the server stopped before the query ended".to_owned()));
    assert_eq!(ended.status.expect("a status").code(), Code::Unavailable);
    let waited = waiting.await.unwrap();
    assert_eq!(waited, [TestEvent::Rejected("the server stopped before a worker was free".to_owned())]);
    assert_eq!(server.wait_within(Duration::from_secs(5)).code(), Some(1));
    assert_eq!(server.leftovers().len(), 0);
}

#[tokio::test]
async fn second_signal_stops_at_once() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1\ncancel_grace = \"60s\"\nterm_grace = \"60s\"");
    let mut server = Server::start(&format!("[pool]\ndrain_timeout = \"60s\"\n{kind}"));
    let mut client = server.client().await;
    let id = client.submit(query(&json!({"steps": ["ignore_term", {"message": 1}, "hang_hard"]}))).await.unwrap();
    eventually_async("the query to run", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move { (client.state(&id).await == QueryState::Streaming).then_some(()) }
    })
    .await;
    let workers = server.worker_pids();
    server.signal(Signal::SIGTERM);
    eventually("the drain to begin", || (server.get("/readyz").0 == 503).then_some(()));
    // A signal that comes twice at once counts once, so it is repeated until it counts.
    let status = eventually("the server to end", || {
        server.signal(Signal::SIGTERM);
        server.ended()
    });
    assert_eq!(status.code(), Some(1));
    assert!(workers.iter().all(|pid| !alive(*pid)));
    assert_eq!(server.leftovers().len(), 0);
}

#[tokio::test]
async fn killed_server_leaves_nothing_of_a_wrapped_worker_either() {
    let worker = env!("CARGO_BIN_EXE_fake-worker");
    let mut server = Server::start(&format!("[kinds.k]\ncommand = [\"sh\", \"-c\", \"{worker}; :\"]\nmin = 1\n"));
    all_ready(&server, "k", 1);
    let mut client = server.client().await;
    client.execute(query(&json!({"steps": ["grandchild", {"complete": 1}]}))).await;
    let all = server.worker_pids();
    assert_eq!(all.len(), 3, "the shell, the worker and its child");
    server.signal(Signal::SIGKILL);
    server.wait();
    eventually("all of them to die", || all.iter().all(|pid| !alive(*pid)).then_some(()));
}

#[tokio::test]
async fn worker_ends_with_a_server_that_has_lost_its_guardian() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut server = Server::start(&fake_kind("k", &[], "min = 1"));
        all_ready(&server, "k", 1);
        let workers = server.worker_pids();
        // Only the parent-death signal is left.
        send_signal(guardian_of(server.pid()), Signal::SIGKILL);
        server.signal(signal);
        server.wait();
        eventually("the worker to die", || workers.iter().all(|pid| !alive(*pid)).then_some(()));
    }
}

#[tokio::test]
async fn killed_workers_are_reaped_and_replaced() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    for _ in 0..10 {
        let seen = client.execute(query(&json!({"steps": ["env"]}))).await.result();
        let pid: u32 = seen["pid"].as_u64().unwrap().try_into().unwrap();
        send_signal(pid, Signal::SIGKILL);
        eventually("the worker to be reaped", || (!std::fs::exists(format!("/proc/{pid}")).unwrap()).then_some(()));
    }
    assert_eq!(zombies_of(server.pid()), Vec::<u32>::new());
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn worker_gets_a_large_environment_and_over_stdio_only_its_standard_streams() {
    let large = "x".repeat(100_000);
    let settings = format!("min = 1\ntransport = \"stdio\"\nenv = {{ LARGE = {large:?} }}");
    let server = Server::start(&fake_kind("k", &["--stdio"], &settings));
    let mut client = server.client().await;
    let seen = client.execute(query(&json!({"steps": ["env"]}))).await.result();
    assert_eq!(seen["env"]["LARGE"], json!(large));
    let descriptors: HashMap<String, String> = serde_json::from_value(seen["fds"].clone()).unwrap();
    let foreign =
        descriptors.iter().filter(|(_, target)| !target.contains("/proc/")).map(|(number, _)| number.as_str());
    let mut foreign: Vec<&str> = foreign.collect();
    foreign.sort_unstable();
    assert_eq!(foreign, ["0", "1", "2"], "{descriptors:?}");
}

#[tokio::test]
async fn stopped_guardian_does_not_hold_up_the_stop_and_does_not_stay() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    all_ready(&server, "k", 1);
    let guardian = guardian_of(server.pid());
    send_signal(guardian, Signal::SIGSTOP);
    assert_eq!(server.stop_cleanly().code(), Some(0));
    assert!(!alive(guardian));
}

#[tokio::test]
async fn query_that_obeys_the_cancel_at_the_end_of_the_drain_is_lost_all_the_same() {
    let kind = fake_kind("k", &[], "min = 1\nmax = 1");
    let mut server = Server::start(&format!("[pool]\ndrain_timeout = \"100ms\"\n{kind}"));
    let mut client = server.client().await;
    let id = client.submit(query(&json!({"steps": [{"message": 1}, "hang"]}))).await.unwrap();
    server.until_busy("k", 1);
    let reading = client.follow(&id).await;
    server.signal(Signal::SIGTERM);
    let events = reading.await.unwrap();
    assert_eq!(events.last(), Some(&TestEvent::Error("the server stopped before the query ended".to_owned())));
    assert_eq!(server.wait().code(), Some(1));
}

#[tokio::test]
async fn more_workers_than_are_started_at_a_time_all_come_up() {
    let kind = fake_kind("k", &[], "min = 100\nmax = 100");
    let server = Server::start(&format!("[pool]\nmax_workers = 100\n{kind}"));
    all_ready(&server, "k", 100);
    assert!(server.metric(r#"remuda_worker_exits_total{cause="start_failed",kind="k"}"#).abs() < f64::EPSILON);
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn kind_without_room_for_a_worker_says_so() {
    let full = fake_kind("a", &[], "min = 1\nmax = 1");
    let starved = fake_kind("b", &[], "min = 0\nmax = 1");
    let server = Server::start(&format!("[pool]\nmax_workers = 1\n{full}{starved}"));
    all_ready(&server, "a", 1);
    let mut client = server.client().await;
    let health = client.health().await;
    assert!(health.serving);
    assert_eq!(health.reasons, ["kind b has no worker, and the pool has no room for one (pool.max_workers)"]);
}

#[tokio::test]
async fn worker_without_queries_idles_and_still_serves() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1\nidle_after = \"50ms\""));
    eventually("the worker to idle", || {
        (server.metric(r#"remuda_workers{kind="k",state="idle"}"#) as u32 == 1).then_some(())
    });
    let mut client = server.client().await;
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
    assert_eq!(client.workers().await[0].worker_id, 1);
}

#[tokio::test]
async fn worker_that_dies_as_soon_as_it_is_ready_is_replaced_with_a_backoff() {
    let settings = "min = 1\nmax = 1\nrestart_backoff = \"10s\"\nrestart_backoff_max = \"10s\"";
    let server = Server::start(&fake_kind("k", &["--idle", r#"[{"exit":1}]"#], settings));
    let reason: Value = eventually("the crash to be known", || {
        let (code, body) = server.get("/readyz");
        let body: Value = serde_json::from_str(&body).unwrap();
        (code == 503 && body["reasons"][0].as_str()?.contains("the last start failed")).then_some(body)
    });
    assert!(reason["reasons"][0].as_str().unwrap().contains("exited with code 1"), "{reason}");
    // Two ticks of the supervisor later there has still been one worker only.
    let started = r#"remuda_worker_start_seconds_count{kind="k"}"#;
    server.client().await.two_ticks().await;
    assert_eq!(server.metric(started) as u32, 1);
}

#[tokio::test]
async fn silent_client_does_not_hold_up_the_stop() {
    let mut server = Server::start(&fake_kind("k", &[], "min = 1"));
    all_ready(&server, "k", 1);
    let _silent = std::net::TcpStream::connect(&server.grpc).unwrap();
    let _silent_http = std::net::TcpStream::connect(&server.http).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_within(Duration::from_secs(5)).code(), Some(0));
    assert_eq!(server.leftovers().len(), 0);
}

#[tokio::test]
async fn worker_gets_its_own_group_a_scrubbed_environment_and_no_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!(
        "min = 1\ndir = {:?}\nenv = {{ MODE = \"fast\" }}\npass_env = [\"PASSED\"]",
        dir.path().display().to_string()
    );
    let server = Server::start_with(&fake_kind("k", &[], &settings), |command| {
        command.env("SECRET", "hush").env("PASSED", "yes");
    });
    let mut client = server.client().await;
    let seen = client.execute(query(&json!({"steps": ["env"]}))).await.result();
    let variables: HashMap<String, String> = serde_json::from_value(seen["env"].clone()).unwrap();
    assert_eq!(variables["MODE"], "fast");
    assert_eq!(variables["PASSED"], "yes");
    assert_eq!(variables["REMUDA_WORKER_ID"], "1");
    assert_eq!(variables["REMUDA_KIND"], "k");
    assert!(variables.contains_key("REMUDA_SOCKET") && variables.contains_key("PATH"));
    assert!(!variables.contains_key("SECRET"));
    assert_eq!(seen["pid"], seen["pgid"], "it leads its own process group");
    let cwd = std::fs::canonicalize(dir.path()).unwrap();
    assert_eq!(seen["cwd"], json!(cwd.display().to_string()));
    let descriptors: HashMap<String, String> = serde_json::from_value(seen["fds"].clone()).unwrap();
    let own = |target: &String| target.starts_with("socket:") || target.contains("/proc/");
    let foreign: Vec<_> =
        descriptors.iter().filter(|(number, target)| number.parse::<u32>().unwrap() > 2 && !own(target)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test]
async fn worker_over_stdin_and_stdout_serves_the_same() {
    let server = Server::start(&fake_kind("k", &["--stdio"], "min = 1\ntransport = \"stdio\""));
    let mut client = server.client().await;
    assert_eq!(client.execute(query(&json!({"a": 1}))).await.result(), json!({"echo": {"a": 1}}));
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn kind_can_run_as_another_user_if_the_server_is_root() {
    if !is_root() {
        return;
    }
    let mut binary = std::path::PathBuf::from(env!("CARGO_BIN_EXE_fake-worker"));
    // The other user must be able to reach the program.
    let dir =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let copy = dir.path().join("fake-worker");
    std::fs::copy(&binary, &copy).unwrap();
    binary = copy;
    let socket_dir =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let config = format!("[kinds.k]\ncommand = [{:?}]\nuser = \"nobody\"\nmin = 1\n", binary.display().to_string());
    let server = Server::start_with(&config, |command| {
        command.env("REMUDA__POOL__SOCKET_DIR", socket_dir.path());
    });
    let mut client = server.client().await;
    let seen = client.execute(query(&json!({"steps": ["env"]}))).await.result();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    assert_eq!((&seen["uid"], &seen["gid"]), (&json!(nobody.uid.as_raw()), &json!(nobody.gid.as_raw())));
    let pid: u32 = seen["pid"].as_u64().unwrap().try_into().unwrap();
    drop(server);
    // The parent-death signal survived the change of user.
    eventually("the worker to die with the server", || (!alive(pid)).then_some(()));
}

#[tokio::test]
async fn grandchildren_end_with_their_worker() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let ended = client.execute(query(&json!({"steps": ["pid", "grandchild", {"exit": 1}]}))).await;
    let TestEvent::Message(pids) = &ended.test_events()[0] else { panic!("{ended:?}") };
    let leader: u32 = pids["pid"].as_u64().unwrap().try_into().unwrap();
    eventually("the grandchild to die", || group_of(leader).is_empty().then_some(()));
    assert!(matches!(ended.last(), TestEvent::Error(message) if message.contains("exited with code 1")));
}

#[tokio::test]
async fn kind_without_a_minimum_starts_workers_on_demand_up_to_its_maximum() {
    let server = Server::start(&fake_kind("k", &[], "min = 0\nmax = 2"));
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.worker_pids().len(), 0);
    let mut client = server.client().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(client.submit(query(&json!({"steps": [{"sleep_ms": 50}, {"complete": 1}]}))).await.unwrap());
    }
    for id in &ids {
        assert_eq!(client.read_all(id).await, [TestEvent::Complete(json!(1))]);
    }
    assert_eq!(server.worker_pids().len(), 2);
}

#[tokio::test]
async fn worker_output_is_in_the_log_with_its_name() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let mut client = server.client().await;
    let steps = json!({"steps": [{"stdout": "hello from stdout"}, {"stderr": "hello from stderr"}, {"complete": 1}]});
    client.execute(query(&steps)).await;
    for stream in ["stdout", "stderr"] {
        let line: Value = eventually("the worker's words in the log", || {
            let message = format!("hello from {stream}");
            server.log_lines().into_iter().find(|line| line["fields"]["message"] == json!(message))
        });
        assert_eq!((&line["fields"]["worker"], &line["fields"]["kind"]), (&json!(1), &json!("k")));
        assert_eq!(line["fields"]["stream"], json!(stream));
    }
}
