//! Texts for the states, times and sizes that the server sends as numbers.

use std::time::{Duration, SystemTime};

use anstyle::Style;
use prost_types::Timestamp;

use super::output::{BAD, BUSY, GOOD};
use crate::api::proto::{
    CancelFound, CircuitState, ConfigEffect, DeathCause, ErrorReason, QueryState, RejectReason, StopStage, WorkerState,
};

/// Name of a value that only a later version knows.
const UNKNOWN: &str = "unknown";

macro_rules! names {
    ($($function:ident: $enum:ident, $prefix:literal;)*) => {
        $(
            pub(super) fn $function(value: i32) -> String {
                short_name($enum::try_from(value).map(|value| value.as_str_name()).ok(), $prefix)
            }
        )*
    };
}

names! {
    query_state: QueryState, "QUERY_STATE_";
    worker_state: WorkerState, "WORKER_STATE_";
    death_cause: DeathCause, "DEATH_CAUSE_";
    stop_stage: StopStage, "STOP_STAGE_";
    error_reason: ErrorReason, "ERROR_REASON_";
    reject_reason: RejectReason, "REJECT_REASON_";
    cancel_found: CancelFound, "CANCEL_FOUND_";
    circuit_state: CircuitState, "CIRCUIT_STATE_";
    config_effect: ConfigEffect, "CONFIG_EFFECT_";
}

/// `QUERY_STATE_RETRY_PENDING` becomes `retry_pending`.
fn short_name(name: Option<&str>, prefix: &str) -> String {
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

/// Time as `2026-01-31T12:00:00.123Z`; empty if there is none.
pub(super) fn time(at: Option<&Timestamp>) -> String {
    system_time(at).map(|at| humantime::format_rfc3339_millis(at).to_string()).unwrap_or_default()
}

pub(super) fn system_time(at: Option<&Timestamp>) -> Option<SystemTime> {
    // The end of the year 9999: RFC 3339 cannot express later times.
    const LAST_TIME: Duration = Duration::from_secs(253_402_300_799);
    let at = SystemTime::try_from(*at?).ok()?;
    at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < LAST_TIME).then_some(at)
}

pub(super) fn duration(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    Duration::try_from(*duration?).ok()
}

/// Duration with at most two digits or two units, to fit into a table; empty if there is none.
pub(super) fn short_duration(duration: Option<Duration>) -> String {
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

/// Size as `412.0 MiB`; empty if it was not measured.
pub(super) fn size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { bytesize::ByteSize::b(bytes).display().iec().to_string() }
}

/// Share of one processor as `12.5`; empty if the process was not sampled, so that its memory is 0 too.
pub(super) fn cpu(percent: f64, rss_bytes: u64) -> String {
    if rss_bytes == 0 { String::new() } else { format!("{percent:.1}") }
}

/// The first line of a text, cut to `max` characters.
pub(super) fn first_line(text: &str, max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= max {
        return line.to_owned();
    }
    line.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// The number; empty for 0, which stands for an absent one.
pub(super) fn nonzero(value: impl Into<u64>) -> String {
    match value.into() {
        0 => String::new(),
        value => value.to_string(),
    }
}

/// Count with its noun, as `1 query` or `3 queries`.
pub(super) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
