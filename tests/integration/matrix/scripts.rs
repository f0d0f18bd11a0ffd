//! Scripts that make the fake worker misbehave, and the config of the server that runs it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::fake_kind;

use super::table::{
    Cell, Misbehaviour,
    Phase::{self, AfterComplete, BeforeFirstMessage, BeforeReady, DuringShutdown, Idle, MidStream, WhileDraining},
    Row,
};

/// Short where a row is to fail, long everywhere else, so that a busy machine makes nothing else fail.
const SETTINGS: &str = r#"
min = 1
max = 1
max_line_bytes = "1KiB"
ping_interval = "100ms"
restart_backoff = "10ms"
restart_backoff_max = "50ms"
circuit_failures = 1000
"#;
const SHORT_GRACE: &str = "cancel_grace = \"100ms\"\nterm_grace = \"200ms\"\n";
/// All are asked to stop at once: this is time for those that hang to begin to, and below for the others to stop.
const GRACE_TO_HANG: &str = "cancel_grace = \"2s\"\nterm_grace = \"200ms\"\n";
const GRACE_TO_STOP: &str = "cancel_grace = \"20s\"\nterm_grace = \"200ms\"\n";
const SHORT_SILENCE: &str = "heartbeat_warning = \"300ms\"\nheartbeat_timeout = \"1s\"\n";
const SHORT_START: &str = "connect_timeout = \"3s\"\nstart_timeout = \"3s\"\n";

/// Tells workers what to do and when, by files.
#[derive(Debug)]
pub(super) struct Signs {
    dir: tempfile::TempDir,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// While this is there, the next worker of the row's kind to look misbehaves.
    pub(super) fn armed(&self, row: &Row) -> PathBuf {
        self.dir.path().join(row.kind())
    }

    /// Once this is there, queries go on.
    pub(super) fn gate(&self) -> PathBuf {
        self.dir.path().join("gate")
    }
}

/// A server with one kind for each row.
pub(super) fn config(rows: &[Row], signs: &Signs) -> String {
    // Only a query that never ends needs the end of the drain.
    let cut_short = rows.iter().any(|row| row.cell == Cell::CutShort);
    let drain = if cut_short { "2s" } else { "30s" };
    let kinds: String = rows.iter().map(|row| kind(row, signs)).collect();
    format!("[pool]\nmax_workers = 64\ndrain_timeout = \"{drain}\"\n{kinds}")
}

fn kind(row: &Row, signs: &Signs) -> String {
    let misbehave = json!({"armed": [signs.armed(row), steps(row)]});
    let beats = row.misbehaviour == Misbehaviour::Stopped;
    let ready = json!({"ready": {"heartbeat": beats}});
    let mut start = vec![json!("connect"), ready];
    if row.phase == BeforeReady {
        start.insert(1, misbehave.clone());
    }
    if beats {
        start.push(json!({"beat_ms": 50}));
    }
    let mut arguments = vec!["--start".to_owned(), Value::from(start).to_string()];
    match row.phase {
        Idle => arguments.extend(["--idle".to_owned(), json!([misbehave]).to_string()]),
        DuringShutdown => {
            let mut steps = steps(row);
            steps.extend([json!("shutdown_ack"), json!({"exit": 0})]);
            arguments.extend(["--on-shutdown".to_owned(), Value::from(steps).to_string()]);
        }
        _ => {}
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    fake_kind(row.kind(), &arguments, &settings(row))
}

fn settings(row: &Row) -> String {
    use remuda::api::proto::DeathCause::{NoHeartbeat, StartTimeout};
    let short = match row.cause() {
        Some(NoHeartbeat) => SHORT_SILENCE,
        Some(StartTimeout) => SHORT_START,
        _ => "",
    };
    let grace = match (row.phase, row.misbehaviour.own_exit()) {
        (DuringShutdown, Some(_)) => GRACE_TO_STOP,
        (DuringShutdown, None) => GRACE_TO_HANG,
        _ => SHORT_GRACE,
    };
    format!("{SETTINGS}{grace}{short}")
}

/// The misbehaviour itself.
fn steps(row: &Row) -> Vec<Value> {
    let in_query = row.phase.is_within_query();
    let steps = match row.misbehaviour {
        Misbehaviour::Exit0 => json!([{"exit": 0}]),
        Misbehaviour::Exit3 => json!([{"exit": 3}]),
        Misbehaviour::Segfault => json!([{"signal": "SEGV"}]),
        Misbehaviour::Killed => json!([{"signal": "KILL"}]),
        Misbehaviour::Abort => json!(["abort"]),
        Misbehaviour::SocketClosed => json!(["close_socket", "hang_hard"]),
        Misbehaviour::HalfLineThenExit => json!(["half_line", {"exit": 3}]),
        Misbehaviour::GarbageLine => json!([{"raw": "this is not json"}]),
        Misbehaviour::LineTooLong => json!([{"long_line": 5_000}]),
        Misbehaviour::InvalidUtf8 => json!([{"raw_hex": "7b22ff227d0a"}]),
        Misbehaviour::UnknownType => json!(["unknown_type"]),
        Misbehaviour::StaleFrame => json!(["stale"]),
        Misbehaviour::SecondReady => json!(["second_ready"]),
        // Together with the complete in one write, or alone when the query is long over.
        Misbehaviour::MessageAfterComplete if in_query => json!(["message_after_complete"]),
        Misbehaviour::MessageAfterComplete => json!([{"message": "late"}]),
        Misbehaviour::TwoCompletes if in_query => json!(["two_completes"]),
        Misbehaviour::TwoCompletes => json!([{"complete": "second"}]),
        Misbehaviour::SilentHang => json!(["hang_hard"]),
        Misbehaviour::Stopped => json!([{"signal": "STOP"}]),
        // The session tells that it does not listen any more.
        Misbehaviour::IgnoresCancel => json!(["ignore_cancel", {"session": "deaf"}, "hang"]),
        Misbehaviour::IgnoresSigterm => json!(["ignore_term", "hang_hard"]),
        Misbehaviour::GrandchildHoldsSocket => json!(["grandchild", {"exit": 3}]),
        Misbehaviour::FloodsStderr => json!([{"flood_stderr": 20_000}]),
        Misbehaviour::ClosesStdout => json!(["close_stdout"]),
    };
    serde_json::from_value(steps).expect("steps are an array")
}

/// The payload of the query that the worker misbehaves under. Only its first attempt does; the others answer with the
/// nonce.
pub(super) fn payload(row: &Row, gate: &Path) -> Value {
    let misbehave = |rest: &[&str]| {
        let rest = rest.iter().map(|step| json!(step));
        json!({"until_attempt": [1, steps(row).into_iter().chain(rest).collect::<Vec<_>>()]})
    };
    let message = json!({"message": "first"});
    let steps = match row.phase {
        BeforeReady | Idle => json!(["nonce"]),
        // These answer for themselves.
        BeforeFirstMessage if completes(row.misbehaviour) => json!([misbehave(&[])]),
        MidStream if completes(row.misbehaviour) => json!([message, misbehave(&[])]),
        BeforeFirstMessage => json!([misbehave(&["nonce"]), "nonce"]),
        MidStream => json!([message, misbehave(&["nonce"]), "nonce"]),
        WhileDraining if completes(row.misbehaviour) => json!([message, {"await_file": gate}, misbehave(&[])]),
        WhileDraining => json!([message, {"await_file": gate}, misbehave(&["nonce"]), "nonce"]),
        AfterComplete => json!([message, "nonce", misbehave(&[])]),
        DuringShutdown if row.cell == Cell::CutShort => json!([message, misbehave(&[])]),
        DuringShutdown => json!([message, {"await_file": gate}, "nonce"]),
    };
    json!({"steps": steps, "nonce": nonce(row)})
}

/// True if the misbehaviour itself ends the query.
fn completes(misbehaviour: Misbehaviour) -> bool {
    matches!(misbehaviour, Misbehaviour::MessageAfterComplete | Misbehaviour::TwoCompletes)
}

/// A text that the answer must hold, so that no other query's is taken for it.
pub(super) fn nonce(row: &Row) -> String {
    format!("{:?} {:?} {:?}", row.misbehaviour, row.phase, row.policy)
}

/// Where the result is not the nonce.
pub(super) fn own_result(row: &Row) -> Option<&'static str> {
    let in_query = row.phase.is_within_query();
    match row.misbehaviour {
        Misbehaviour::MessageAfterComplete if in_query => Some("done"),
        Misbehaviour::TwoCompletes if in_query => Some("first"),
        _ => None,
    }
}

/// Number of messages that one attempt sends.
pub(super) fn messages_per_attempt(phase: Phase) -> usize {
    match phase {
        BeforeReady | Idle | BeforeFirstMessage => 0,
        MidStream | AfterComplete | WhileDraining | DuringShutdown => 1,
    }
}
