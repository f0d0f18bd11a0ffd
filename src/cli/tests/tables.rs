//! Tests of tables, and of the same data as JSON.

use std::time::SystemTime;

use prost_types::{Duration, Timestamp};

use super::plain;
use crate::{
    api::proto::{
        DeathCause, DeathCertificate, GetWorkerResponse, HealthResponse, KindHealth, QueryInfo, QueryState,
        ResourceSample, StateCount, Worker, WorkerState, WorkerTransition,
    },
    cli::{format, health, json, output::printable, queries, workers},
};

#[expect(clippy::unnecessary_wraps, reason = "fields of messages are options")]
fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

#[expect(clippy::unnecessary_wraps, reason = "fields of messages are options")]
fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn worker(id: u64, kind: &str) -> Worker {
    Worker {
        worker_id: id,
        kind: kind.to_owned(),
        pid: 4000,
        state: WorkerState::Ready.into(),
        queries_processed: 12,
        uptime: seconds(3725),
        ..Default::default()
    }
}

fn certificate() -> DeathCertificate {
    DeathCertificate {
        worker_id: 7,
        kind: "embed".to_owned(),
        cause: DeathCause::Crash.into(),
        signal: "SIGKILL".to_owned(),
        stderr_tail: "loading\n\u{1b}[31mboom\n".to_owned(),
        summary: "worker 7 (embed) was killed by SIGKILL".to_owned(),
        at: at(60),
        ..Default::default()
    }
}

fn workers_table(workers: &[Worker]) -> String {
    let mut table = workers::table();
    for worker in workers {
        table.row(workers::row(worker));
    }
    plain(&table.render())
}

#[test]
fn workers_stand_in_columns() {
    let busy = Worker {
        state: WorkerState::Processing.into(),
        query_id: "q-1".to_owned(),
        rss_bytes: 412 << 20,
        cpu_percent: 99.96,
        ..worker(10, "embedding")
    };
    assert_eq!(
        workers_table(&[worker(9, "chat"), busy]),
        "\
ID  KIND       STATE        PID  UPTIME  QUERIES        RSS   CPU%  QUERY
 9  chat       ready       4000   1h 2m       12          -      -  -
10  embedding  processing  4000   1h 2m       12  412.0 MiB  100.0  q-1
"
    );
}

#[test]
fn bound_and_drained_workers_are_marked() {
    let worker =
        Worker { key: "repo-7".to_owned(), drained: true, reserved_memory_bytes: 1 << 30, ..worker(9, "agent") };
    let row = workers_table(std::slice::from_ref(&worker));
    assert!(row.contains(" 9  agent [repo-7]  ready (drained)  4000  "), "{row}");
    let value: serde_json::Value = serde_json::from_str(json::worker(&worker).get()).unwrap();
    assert_eq!((value["key"].as_str(), value["drained"].as_bool()), (Some("repo-7"), Some(true)));
    assert_eq!(value["reserved_memory_bytes"], 1 << 30);
    let text = plain(&workers::render_details(&GetWorkerResponse { worker: Some(worker), ..Default::default() }));
    for line in ["key       repo-7\n", "state     ready (drained)\n", "reserved  1.0 GiB\n"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn ended_worker_shows_its_history_and_standard_error() {
    let step = WorkerTransition {
        from: WorkerState::Ready.into(),
        to: WorkerState::Failed.into(),
        at: at(60),
        reason: "it crashed".to_owned(),
    };
    let response = GetWorkerResponse {
        worker: Some(worker(7, "embed")),
        history: vec![step],
        certificate: Some(certificate()),
        samples: Vec::new(),
    };
    let text = plain(&workers::render_details(&response));
    assert!(text.contains("\nkind     embed\n"), "{text}");
    assert!(!text.contains("capabilities"), "{text}");
    assert!(text.contains("\n1970-01-01T00:01:00.000Z  ready  failed  it crashed\n"), "{text}");
    assert!(text.contains("\ncause    crash\nsignal   SIGKILL\n"), "{text}");
    assert!(text.ends_with("standard error:\n  loading\n  \\u{1b}[31mboom\n"), "{text}");
}

#[test]
fn workers_table_fits_with_long_ids_and_large_numbers() {
    let busy = Worker {
        state: WorkerState::Processing.into(),
        pid: 4_194_304,
        query_id: "0190f3c2-7b1e-7cc3-98c4-dc0c0c07398f".to_owned(),
        rss_bytes: 1023 << 20,
        cpu_percent: 100.0,
        uptime: seconds(86_399),
        ..worker(100, "embedding")
    };
    let text = workers_table(&[busy]);
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn worker_shows_its_last_samples_and_when_it_was_heard() {
    let sample = |second| ResourceSample { at: at(second), rss_bytes: 5 << 20, cpu_percent: 12.54 };
    let measured = Worker { rss_bytes: 5 << 20, cpu_percent: 12.54, last_heard: seconds(2), ..worker(7, "embed") };
    let response = GetWorkerResponse {
        worker: Some(measured),
        samples: (0..9).map(sample).collect(),
        ..GetWorkerResponse::default()
    };
    let text = plain(&workers::render_details(&response));
    assert!(text.contains("\nlast heard  2.0s ago\nrss         5.0 MiB\ncpu         12.5%\n"), "{text}");
    assert!(
        text.contains("\n\nAT                            RSS  CPU%\n1970-01-01T00:00:04.000Z  5.0 MiB  12.5\n"),
        "{text}"
    );
    assert!(text.ends_with("\n1970-01-01T00:00:08.000Z  5.0 MiB  12.5\n"), "{text}");
    assert_eq!(json::worker_details(&response).get().matches("\"cpu_percent\":12.54").count(), 10);
}

#[test]
fn queries_show_how_long_they_waited_and_ran() {
    let done = QueryInfo {
        query_id: "job-7".to_owned(),
        kind: "embed".to_owned(),
        state: QueryState::Complete.into(),
        worker_id: 3,
        attempts: 1,
        submitted_at: at(10),
        started_at: at(12),
        ended_at: at(75),
        next_sequence: 4,
        ..Default::default()
    };
    let waiting = QueryInfo { query_id: "b".to_owned(), submitted_at: at(90), state: 1, ..Default::default() };
    let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100);
    let mut table = queries::table();
    table.row(queries::row(&done, now));
    table.row(queries::row(&waiting, now));
    assert_eq!(
        plain(&table.render()),
        "\
ID     STATE     KIND   TYPE  PRIO  OWNER  WORKER  ATTEMPTS  EVENTS  WAITED    RAN
job-7  complete  embed  -        0  -           3         1       4    2.0s  1m 3s
b      pending   -      -        0  -           -         0       0     10s      -
"
    );
    assert!(plain(&queries::render_details(&done)).contains("\nended      1970-01-01T00:01:15.000Z\n"));
}

#[test]
fn query_names_its_other_lives() {
    let plain_query = QueryInfo { query_id: "b".to_owned(), ..Default::default() };
    let text = plain(&queries::render_details(&plain_query));
    assert!(!text.contains("requeued") && !text.contains("dead"), "{text}");
    let dead = QueryInfo { dead_letter: true, requeued_from: "a".to_owned(), ..plain_query.clone() };
    let text = plain(&queries::render_details(&dead));
    assert!(text.ends_with("\ndead letter    remuda dead show b\nrequeued from  a\n"), "{text}");
    let requeued = QueryInfo { requeued_as: "c".to_owned(), ..plain_query };
    assert!(plain(&queries::render_details(&requeued)).ends_with("\nrequeued as  c\n"));
    let json = json::query(&requeued);
    assert!(json.get().ends_with(r#""dead_letter":false,"requeued_from":null,"requeued_as":"c"}"#), "{json}");
}

#[test]
fn health_names_each_reason_and_the_last_failure() {
    let mut health = HealthResponse {
        serving: true,
        lifecycle: "ready".to_owned(),
        occupancy: "active".to_owned(),
        version: "0.1.0".to_owned(),
        uptime: seconds(90),
        queries_waiting: 1,
        kinds: vec![KindHealth {
            kind: "embed".to_owned(),
            serving: true,
            workers: vec![
                StateCount { state: WorkerState::Ready.into(), count: 2 },
                StateCount { state: WorkerState::Processing.into(), count: 1 },
            ],
            min: 1,
            max: 4,
            ..Default::default()
        }],
        ..Default::default()
    };
    let table =
        "\nKIND   SERVING  MIN  MAX  WAITING  WORKERS\nembed  yes        1    4        0  2 ready, 1 processing\n";
    assert_eq!(
        plain(&health::render(&health)),
        format!("serving: ready, active; 1 query waiting; remuda 0.1.0, up 1m 30s\n{table}")
    );
    health.serving = false;
    health.reasons = vec!["embed: no worker starts".to_owned()];
    health.kinds[0].last_failure = Some(certificate());
    let text = plain(&health::render(&health));
    assert!(text.starts_with("not serving: ready"), "{text}");
    assert!(text.contains("\n  embed: no worker starts\n"), "{text}");
    assert!(
        text.ends_with(
            "\nlast failure of embed, at 1970-01-01T00:01:00.000Z:\n  worker 7 (embed) was killed by SIGKILL\n"
        ),
        "{text}"
    );
}

#[test]
fn json_has_null_for_absent_values() {
    assert_eq!(
        json::worker(&worker(9, "chat")).get(),
        r#"{"worker_id":9,"kind":"chat","pid":4000,"state":"ready","query_id":null,"queries_processed":12,"started_at":null,"uptime_seconds":3725.0,"peak_rss_bytes":null,"rss_bytes":null,"cpu_percent":null,"last_heard_seconds":null,"name":null,"version":null,"capabilities":[],"key":null,"drained":false,"reserved_memory_bytes":null}"#
    );
    let query = QueryInfo { query_id: "a".to_owned(), state: 99, submitted_at: at(1), ..Default::default() };
    let json = json::query(&query);
    let line = json.get();
    assert!(line.contains(r#""state":"unknown""#) && line.contains(r#""submitted_at":"1970-01-01T00:00:01.000Z""#));
}

#[test]
fn foreign_text_cannot_control_the_terminal() {
    assert_eq!(printable("a\tb\nc"), "a\tb\nc");
    assert_eq!(printable("\u{1b}[2J\u{7}\u{9b}é"), "\\u{1b}[2J\\u{7}\\u{9b}é");
    let sly = Worker { query_id: "a\nb\u{1b}".to_owned(), ..worker(1, "k") };
    assert!(workers_table(&[sly]).ends_with("  a b\\u{1b}\n"));
}

#[test]
fn durations_are_short() {
    let short = |millis| format::short_duration(Some(std::time::Duration::from_millis(millis)));
    let pairs = [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1.5s"),
        (59_999, "59s"),
        (61_000, "1m 1s"),
        (7_260_000, "2h 1m"),
        (90_000_000, "1d 1h"),
    ];
    for (millis, text) in pairs {
        assert_eq!(short(millis), text);
    }
    assert_eq!(format::short_duration(None), "");
}

#[test]
fn times_that_cannot_be_written_are_left_out() {
    for seconds in [-1, i64::MAX, 300_000_000_000] {
        assert_eq!(format::time(at(seconds).as_ref()), "");
    }
}
