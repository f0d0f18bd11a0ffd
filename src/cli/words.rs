//! Words for what the server says in numbers: states, times, sizes.

use std::time::{Duration, SystemTime};

use anstyle::Style;
use prost_types::Timestamp;

use super::output::{BAD, BUSY, GOOD};
use crate::api::proto::{
    CancelFound, CircuitState, ConfigEffect, DeathCause, ErrorReason, QueryState, RejectReason, StopStage, WorkerState,
};

/// A later server may know what this command does not.
const UNKNOWN: &str = "unknown";

macro_rules! names {
    ($($function:ident: $enum:ident, $prefix:literal;)*) => {
        $(
            pub(super) fn $function(value: i32) -> String {
                short($enum::try_from(value).map(|value| value.as_str_name()).ok(), $prefix)
            }
        )*
    };
}

names! {
    query_state: QueryState, "QUERY_STATE_";
    worker_state: WorkerState, "WORKER_STATE_";
    death_cause: DeathCause, "DEATH_CAUSE_";
    stage: StopStage, "STOP_STAGE_";
    error_reason: ErrorReason, "ERROR_REASON_";
    reject_reason: RejectReason, "REJECT_REASON_";
    cancel_found: CancelFound, "CANCEL_FOUND_";
    circuit_state: CircuitState, "CIRCUIT_STATE_";
    config_effect: ConfigEffect, "CONFIG_EFFECT_";
}

/// `QUERY_STATE_RETRY_PENDING` is `retry_pending` wherever a person reads it.
fn short(name: Option<&str>, prefix: &str) -> String {
    name.and_then(|name| name.strip_prefix(prefix)).unwrap_or(UNKNOWN).to_ascii_lowercase()
}

pub(super) fn query_style(state: i32) -> Style {
    match QueryState::try_from(state) {
        Ok(QueryState::Complete) => GOOD,
        Ok(QueryState::Error | QueryState::Rejected) => BAD,
        Ok(QueryState::Processing | QueryState::Streaming | QueryState::RetryPending) => BUSY,
        _ => Style::new(),
    }
}

pub(super) fn worker_style(state: i32) -> Style {
    match WorkerState::try_from(state) {
        Ok(WorkerState::Ready | WorkerState::Idle) => GOOD,
        Ok(WorkerState::Failed | WorkerState::Dead) => BAD,
        Ok(WorkerState::Processing | WorkerState::Spawning | WorkerState::Loading) => BUSY,
        _ => Style::new(),
    }
}

/// As `2026-01-31T12:00:00.123Z`; empty if there is none.
pub(super) fn time(at: Option<&Timestamp>) -> String {
    moment(at).map(|at| humantime::format_rfc3339_millis(at).to_string()).unwrap_or_default()
}

pub(super) fn moment(at: Option<&Timestamp>) -> Option<SystemTime> {
    // Years past 9999 cannot be written.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let at = SystemTime::try_from(*at?).ok()?;
    at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < LAST).then_some(at)
}

pub(super) fn duration(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    Duration::try_from(*duration?).ok()
}

/// A duration with two digits or two units at most, which is what fits into a table; empty if there is none.
pub(super) fn rough(duration: Option<Duration>) -> String {
    let Some(duration) = duration else { return String::new() };
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// As `412.0 MiB`; empty if it was not measured.
pub(super) fn size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { bytesize::ByteSize::b(bytes).display().iec().to_string() }
}

/// Of one processor, as `12.5`; empty if the process was not looked at, which its memory tells: there is none without.
pub(super) fn cpu(percent: f64, rss_bytes: u64) -> String {
    if rss_bytes == 0 { String::new() } else { format!("{percent:.1}") }
}

/// The first line of a text, and no more than `most` characters of it.
pub(super) fn beginning(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= most {
        return line.to_owned();
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// As it stands, or empty for 0, which means that there is none.
pub(super) fn number(value: impl Into<u64>) -> String {
    match value.into() {
        0 => String::new(),
        value => value.to_string(),
    }
}

/// As `1 query` or `3 queries`.
pub(super) fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
