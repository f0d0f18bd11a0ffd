//! The load generator against real servers: its counts, its texts, its exit codes.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Server, eventually, fake_kind, output_of, remuda, run, send_signal};

/// A pool of two echo workers.
fn echo_server() -> Server {
    Server::start(&echo_kind())
}

fn echo_kind() -> String {
    format!("[kinds.echo]\ncommand = [{:?}, \"worker\", \"echo\"]\nmin = 2\nmax = 2\n", env!("CARGO_BIN_EXE_remuda"))
}

/// Runs `remuda bench --json` with these arguments and gives its exit code and what it printed.
fn bench(server: &Server, arguments: &str) -> (i32, Value) {
    let arguments: Vec<_> = ["bench", "--json"].into_iter().chain(arguments.split(' ')).collect();
    let (code, out, err) = run(server, &arguments);
    let report = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    (code, report)
}

/// A baseline in a process of its own.
struct Baseline {
    child: Child,
    address: String,
}

impl Baseline {
    fn start() -> Self {
        let mut command = remuda();
        command.args(["bench", "baseline", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = remuda();
        command.args(["--endpoint", &self.address]).args(arguments.split(' '));
        command
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn counts_are_exact() {
    let server = echo_server();
    let arguments = "--count 300 --concurrency 8 --connections 3 --messages 5 --size 100 --payload-size 1KB --rounds 2";
    let (code, report) = bench(&server, arguments);
    assert_eq!(code, 0);
    let figures = &report["remuda"];
    assert_eq!((&figures["queries"], &figures["completed"]), (&600.into(), &600.into()));
    assert_eq!((&figures["failed"], &figures["hung"], &figures["messages"]), (&0.into(), &0.into(), &3_000.into()));
    assert!(figures["queries_per_second"].as_f64().unwrap() > 0.0);
    assert!(figures["latency_us"]["p99.9"].as_f64() >= figures["first_message_us"]["p50"].as_f64());
    assert_eq!(figures["errors"].as_array().unwrap().len(), 0);
    assert_eq!(report["settings"]["connections"], 3);
    assert_eq!(report["settings"]["payload_size"], 1_000);
    assert_eq!(server.metric_sum("remuda_query_results_total") as u64, 600);
}

#[test]
fn people_get_a_table() {
    let server = echo_server();
    let (code, out, _) = run(&server, &["bench", "--duration", "100ms", "--warmup", "10ms", "--concurrency", "2"]);
    assert_eq!(code, 0);
    for words in ["2 queries at a time", "COMPLETED", "QUERIES/S", "remuda, first message", "remuda, whole query"] {
        assert!(out.contains(words), "{out}");
    }
}

#[test]
fn failures_are_reported_by_status_with_an_example() {
    let server = echo_server();
    let (code, report) = bench(&server, "--count 3 --kind embed");
    assert_eq!(code, 1);
    let figures = &report["remuda"];
    assert_eq!((&figures["queries"], &figures["failed"]), (&3.into(), &3.into()));
    assert_eq!(figures["errors"][0]["code"], "INVALID_ARGUMENT");
    assert!(figures["errors"][0]["example"].as_str().unwrap().contains("there is no kind \"embed\""));
    assert_eq!(figures["latency_us"], Value::Null);
}

#[test]
fn query_that_takes_too_long_counts_as_hung() {
    let server = echo_server();
    let arguments = ["bench", "--json", "-n", "1", "--timeout", "100ms", "--payload", r#"{"sleep_ms":600000}"#];
    let (code, out, _) = run(&server, &arguments);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["remuda"]["hung"], &report["remuda"]["queries"]), (1, &1.into(), &1.into()));
}

#[test]
fn interrupt_ends_the_run_and_reports_what_was_measured() {
    let server = echo_server();
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc, "bench", "--json", "--duration", "10m", "--warmup", "0s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("some queries", || (server.metric_sum("remuda_query_results_total") > 10.0).then_some(()));
    send_signal(child.id(), Signal::SIGINT);
    let (code, out, _) = output_of(&child.wait_with_output().unwrap());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["interrupted"]), (0, &true.into()));
    assert!(report["remuda"]["completed"].as_u64().unwrap() > 10);
}

#[test]
fn baseline_answers_as_a_pool_of_echo_workers_does() {
    let (server, mut baseline) = (echo_server(), Baseline::start());
    let payload = r#"{"stream":3,"size":50}"#;
    let (_, expected, _) = run(&server, &["run", payload]);
    let (code, out, _) = output_of(&baseline.command("run").arg(payload).output().unwrap());
    assert_eq!((code, out), (0, expected));
    let (code, out, _) = output_of(&baseline.command("bench --json --count 50 --messages 20").output().unwrap());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["remuda"]["messages"]), (0, &1_000.into()));
    send_signal(baseline.child.id(), Signal::SIGTERM);
    assert_eq!(baseline.child.wait().unwrap().code(), Some(0));
}

#[test]
fn protected_server_is_shown_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, own) = (dir.path().join("tokens"), dir.path().join("own"));
    fs::write(&tokens, "ci submit submit-0123456789\n").unwrap();
    fs::write(&own, "submit-0123456789\n").unwrap();
    let door = format!("[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ntokens = {tokens:?}\n");
    let server = Server::start(&format!("{door}{}", echo_kind()));
    let (code, report) = bench(&server, &format!("--count 20 --token-file {}", own.display()));
    assert_eq!((code, &report["remuda"]["completed"]), (0, &20.into()));
    let (code, report) = bench(&server, "--count 2");
    assert_eq!((code, &report["remuda"]["errors"][0]["code"]), (1, &"UNAUTHENTICATED".into()));
}

#[test]
fn unreachable_server_has_its_own_exit_code() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (code, out, err) = output_of(&remuda().args(["--endpoint", &free, "bench"]).output().unwrap());
    assert_eq!((code, out.as_str()), (5, ""));
    assert!(err.contains("cannot reach remuda at"), "{err}");
}

#[test]
fn wrong_options_are_refused_with_what_is_right() {
    let cases = [
        ("--size 10", "'--size <SIZE>': give 11 bytes to 64.0 MiB"),
        ("--size much", "write a number of bytes, or a size like 64KiB or 1MB"),
        ("--payload-size 31", "--payload-size 31: give at least 32 bytes"),
        ("--concurrency 0", "1..=100000"),
        ("--duration 0s", "give a time above zero"),
        ("--duration 5", "write one like 5s, 200ms"),
        ("--count 5 --duration 5s", "cannot be used with"),
        ("--payload {} --messages 5", "cannot be used with"),
        ("--payload {", "the payload is not JSON"),
        ("--spawn 0", "1..=10000"),
        ("--spawn 2 --kind echo", "cannot be used with"),
        ("--compare --payload {}", "cannot be used with"),
        ("--chaos=0s", "give a time above zero"),
        ("baseline --listen here", "invalid socket address"),
    ];
    for (arguments, words) in cases {
        let (code, _, err) = output_of(&remuda().arg("bench").args(arguments.split(' ')).output().unwrap());
        assert_eq!(code, 2, "{arguments}");
        assert!(err.contains(words), "{arguments}: {err}");
    }
}

#[test]
fn worker_that_is_no_echo_worker_can_be_measured_too() {
    let server = Server::start(&fake_kind("fake", &[], "min = 1\nmax = 1"));
    let (code, out, err) = run(&server, &["bench", "--json", "--count", "5", "--payload", "{}"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn comparison_gives_a_ratio() {
    let server = echo_server();
    let (code, report) = bench(&server, "--compare --count 100 --concurrency 4 --messages 3 --rounds 2");
    assert_eq!(code, 0);
    for subject in ["remuda", "baseline"] {
        assert_eq!((&report[subject]["completed"], &report[subject]["messages"]), (&200.into(), &600.into()));
    }
    for part in ["queries_per_second", "messages_per_second", "latency_p50"] {
        assert!(report["ratio"][part].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!((&report["single"], &report["chaos"]), (&Value::Null, &Value::Null));
}

#[test]
fn single_query_is_compared_with_a_call_and_a_worker() {
    let server = echo_server();
    let (code, report) = bench(&server, "--compare --count 50 --concurrency 1 --rounds 1");
    assert_eq!(code, 0);
    let single = &report["single"];
    let [remuda, unary, raw] = ["remuda_p50_us", "unary_p50_us", "raw_p50_us"].map(|of| single[of].as_f64().unwrap());
    assert!((single["ratio"].as_f64().unwrap() - remuda / (unary + raw)).abs() < 1e-6, "{single}");
    let (code, out, _) = run(&server, &["bench", "--compare", "-c", "1", "--count", "20", "--rounds", "1"]);
    assert_eq!(code, 0);
    assert!(out.contains("x its queries/s") && out.contains("raw round trip)"), "{out}");
}

#[test]
fn killed_workers_lose_nothing_that_may_be_retried() {
    let server = Server::start(&format!("[recovery]\nstrategy = \"retry\"\nattempts = 3\n{}", echo_kind()));
    // There is somebody to kill once a query has been answered.
    assert_eq!(bench(&server, "--count 1").0, 0);
    let arguments = "--chaos=200ms --duration 1500ms --rounds 1 --warmup 0s --concurrency 8 --messages 100";
    let (code, report) = bench(&server, arguments);
    let chaos = &report["chaos"];
    assert_eq!((code, &chaos["failed"], &chaos["hung"]), (0, &0.into(), &0.into()), "{report}");
    assert!(chaos["killed"].as_u64().unwrap() >= 1 && chaos["rate_kept"].as_f64().unwrap() > 0.0, "{report}");
    assert!(server.metric_sum("remuda_worker_exits_total") >= 1.0);
}

#[test]
fn chaos_needs_workers_that_run_here() {
    let server = Server::start(&fake_kind("fake", &[], "min = 0\nmax = 1"));
    let (code, _, err) = run(&server, &["bench", "--chaos", "--kind", "fake"]);
    assert_eq!(code, 2);
    assert!(err.contains("--chaos: there is no worker to kill"), "{err}");
}

/// Files in a directory, and processes that name it in their arguments or environment.
fn traces_of(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path().display().to_string());
    let name = dir.display().to_string();
    let knows = |pid: &String| {
        let known = |part| fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
        [known("cmdline"), known("environ")].iter().any(|text| String::from_utf8_lossy(text).contains(&name))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().display().to_string());
    files.chain(processes.filter(|name| name.parse::<u32>().is_ok()).filter(knows)).collect()
}

#[test]
fn server_of_its_own_leaves_nothing_behind() {
    let dir = tempfile::Builder::new().prefix("rb").tempdir().unwrap();
    let mut command = remuda();
    command.args(["bench", "--json", "--spawn", "3", "--count", "200", "--compare", "-c", "1", "--rounds", "1"]);
    let (code, out, err) = output_of(&command.env("TMPDIR", dir.path()).output().unwrap());
    assert_eq!(code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["remuda"]["completed"], 200);
    assert_eq!(traces_of(dir.path()), Vec::<String>::new());
}

#[test]
fn interrupted_run_stops_its_own_server_too() {
    let dir = tempfile::Builder::new().prefix("rb").tempdir().unwrap();
    let mut command = remuda();
    command.args(["bench", "--spawn", "2", "--duration", "10m"]).env("TMPDIR", dir.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the server's files", || fs::read_dir(dir.path()).unwrap().next().map(drop));
    send_signal(child.id(), Signal::SIGINT);
    let (_, out, _) = output_of(&child.wait_with_output().unwrap());
    assert!(out.contains("interrupted"), "{out}");
    assert_eq!(traces_of(dir.path()), Vec::<String>::new());
}

#[test]
fn server_of_its_own_that_does_not_start_says_why() {
    let dir = tempfile::Builder::new().prefix("rb").tempdir().unwrap();
    let long = dir.path().join("x".repeat(60));
    fs::create_dir(&long).unwrap();
    let (code, _, err) = output_of(&remuda().args(["bench", "--spawn", "1"]).env("TMPDIR", &long).output().unwrap());
    assert_eq!(code, 1);
    assert!(err.contains("--spawn: the spawned server failed"), "{err}");
    assert_eq!(traces_of(&long), Vec::<String>::new());
}
