//! The report of a run, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::{
    bench::{BenchRun, BenchSummary, Percentiles, RoundLength, SubjectStats},
    cli::{
        args::LoadArgs,
        format,
        output::{BAD, printable},
        table::{Cell, Table, properties},
    },
};

/// Characters of an error's text that are shown.
const EXAMPLE_WIDTH: usize = 200;

/// The settings and results of a run; `remuda bench --help` describes the fields.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct BenchReport {
    pub settings: BenchSettings,
    #[serde(flatten)]
    pub summary: BenchSummary,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct BenchSettings {
    pub endpoint: String,
    pub concurrency: usize,
    pub connections: usize,
    /// `None` with --payload.
    pub messages: Option<u64>,
    pub size: Option<u64>,
    pub payload_size: usize,
    pub rounds: u32,
    pub duration_seconds: Option<f64>,
    pub count: Option<u64>,
    pub warmup_seconds: f64,
    pub timeout_seconds: f64,
    pub chaos_seconds: Option<f64>,
}

impl BenchSettings {
    pub(super) fn new(run: &BenchRun, args: &LoadArgs) -> Self {
        let own_payload = args.payload.is_some();
        let (duration_seconds, count) = match run.length {
            RoundLength::Duration(duration) => (Some(duration.as_secs_f64()), None),
            RoundLength::Queries(count) => (None, Some(count)),
        };
        Self {
            endpoint: run.endpoint.to_string(),
            concurrency: run.load.concurrency,
            connections: run.connections,
            messages: (!own_payload).then_some(args.messages),
            size: (!own_payload).then_some(args.size),
            payload_size: run.load.query.payload.len(),
            rounds: run.rounds,
            duration_seconds,
            count,
            warmup_seconds: run.warmup.as_secs_f64(),
            timeout_seconds: run.load.timeout.as_secs_f64(),
            chaos_seconds: run.chaos.map(|interval| interval.as_secs_f64()),
        }
    }

    /// The load as `64 queries at a time over 4 connections, payload of 200 B, 1 message of 200 B`.
    fn load(&self) -> String {
        let queries = format::plural(self.concurrency as u64, "query", "queries");
        let connections = format::plural(self.connections as u64, "connection", "connections");
        let payload = format::size(self.payload_size as u64);
        let mut text = format!("{queries} at a time over {connections}, payload of {payload}");
        if let (Some(messages), Some(size)) = (self.messages, self.size) {
            let messages = format::plural(messages, "message", "messages");
            let _ = write!(text, ", {messages} of {}", format::size(size));
        }
        text
    }
}

impl BenchReport {
    pub(super) fn render(&self) -> String {
        let subjects = self.subjects();
        let mut text = properties(&[("endpoint", self.settings.endpoint.clone()), ("load", self.settings.load())]);
        let _ = write!(text, "\n{}\n{}", counts(&subjects), latencies(&subjects));
        for (name, stats) in &subjects {
            text.push_str(&errors(name, stats));
        }
        let conclusions = self.conclusions();
        if !conclusions.is_empty() {
            let _ = write!(text, "\n{conclusions}");
        }
        if self.summary.interrupted {
            text.push_str("\ninterrupted: these are the results until then\n");
        }
        text
    }

    fn subjects(&self) -> Vec<(&'static str, &SubjectStats)> {
        let BenchSummary { remuda, baseline, chaos, .. } = &self.summary;
        let baseline = baseline.as_ref().map(|baseline| ("baseline", baseline));
        let chaos = chaos.as_ref().map(|chaos| ("chaos", &chaos.figures));
        [Some(("remuda", remuda)), baseline, chaos].into_iter().flatten().collect()
    }

    /// The ratios, one a line.
    fn conclusions(&self) -> String {
        let BenchSummary { ratio, single, chaos, .. } = &self.summary;
        let ratio = ratio.map(|ratio| {
            let messages = ratio.messages_per_second.map(|ratio| format!(", {ratio:.2} x its messages/s"));
            let latency = ratio.latency_p50.map(|ratio| format!(", {ratio:.2} x its p50"));
            let others = messages.unwrap_or_default() + &latency.unwrap_or_default();
            format!("{:.2} x its queries/s{others}", ratio.queries_per_second)
        });
        let single = single.map(|single| {
            let [remuda, unary, raw] = [single.remuda_p50_us, single.unary_p50_us, single.raw_p50_us].map(time);
            format!("{:.2} x: {remuda} / ({unary} unary + {raw} raw round trip)", single.ratio)
        });
        let chaos = chaos.as_ref().map(|chaos| {
            let kept = chaos.rate_kept.map(|kept| format!(", rate kept: {kept:.2} x the undisturbed"));
            let kept = kept.unwrap_or_default();
            format!("{} killed, {} failed, {} hung{kept}", chaos.killed, chaos.failed, chaos.hung)
        });
        properties(&[
            ("remuda / baseline", ratio.unwrap_or_default()),
            ("p50 / (call + worker)", single.unwrap_or_default()),
            ("chaos", chaos.unwrap_or_default()),
        ])
    }
}

fn counts(subjects: &[(&str, &SubjectStats)]) -> String {
    let mut table =
        Table::new(&["SERVER", "COMPLETED", "FAILED", "HUNG", "SECONDS", "QUERIES/S", "MESSAGES/S"], "<>>>>>>");
    let bad = |count: u64| if count == 0 { Cell::from(count) } else { Cell::styled(count, BAD) };
    for (name, stats) in subjects {
        table.row([
            Cell::from(name),
            stats.completed.into(),
            bad(stats.failed),
            bad(stats.hung),
            format!("{:.1}", stats.seconds).into(),
            format!("{:.0}", stats.queries_per_second).into(),
            format!("{:.0}", stats.messages_per_second).into(),
        ]);
    }
    table.render()
}

fn latencies(subjects: &[(&str, &SubjectStats)]) -> String {
    let mut table = Table::new(&["LATENCY", "P50", "P90", "P99", "P99.9", "MAX"], "<>>>>>");
    for (name, stats) in subjects {
        let rows = [("first message", stats.first_message_us), ("whole query", stats.latency_us)];
        for (what, percentiles) in rows {
            let Some(Percentiles { p50, p90, p99, p999, max }) = percentiles else { continue };
            let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(|value| Cell::from(time(value)));
            table.row([Cell::from(format!("{name}, {what}")), p50, p90, p99, p999, max]);
        }
    }
    table.render()
}

/// Time as `85 µs`, `1.25 ms` or `2.10 s`.
fn time(microseconds: f64) -> String {
    match microseconds {
        ..1_000.0 => format!("{microseconds:.0} µs"),
        ..1_000_000.0 => format!("{:.2} ms", microseconds / 1e3),
        _ => format!("{:.2} s", microseconds / 1e6),
    }
}

fn errors(name: &str, stats: &SubjectStats) -> String {
    let mut text = String::new();
    for error in &stats.errors {
        let example = format::first_line(&printable(&error.example), EXAMPLE_WIDTH);
        let _ = writeln!(text, "\n{name}: {} failed with {}, such as: {example}", error.count, error.code);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let told = [0.4, 85.2, 999.4, 1_250.0, 2_100_000.0].map(time);
        assert_eq!(told, ["0 µs", "85 µs", "999 µs", "1.25 ms", "2.10 s"]);
    }
}
