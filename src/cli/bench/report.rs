//! What a run has shown, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::{
    bench::{Extent, Figures, Percentiles, Session, Summary},
    cli::{
        args::LoadArgs,
        output::{BAD, printable},
        table::{Align, Cell, Table, properties},
        words,
    },
};

/// How much of an error's text a person wants to see.
const EXAMPLE: usize = 200;

/// Everything that was asked for and measured; the help describes it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Report {
    pub settings: Settings,
    #[serde(flatten)]
    pub summary: Summary,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Settings {
    pub endpoint: String,
    pub concurrency: usize,
    pub connections: usize,
    /// `None` with a payload of the user's own.
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

impl Settings {
    pub(super) fn new(session: &Session, args: &LoadArgs) -> Self {
        let own_payload = args.payload.is_some();
        let (duration_seconds, count) = match session.extent {
            Extent::For(duration) => (Some(duration.as_secs_f64()), None),
            Extent::Count(count) => (None, Some(count)),
        };
        Self {
            endpoint: session.endpoint.to_string(),
            concurrency: session.load.concurrency,
            connections: session.connections,
            messages: (!own_payload).then_some(args.messages),
            size: (!own_payload).then_some(args.size),
            payload_size: session.load.query.payload.len(),
            rounds: session.rounds,
            duration_seconds,
            count,
            warmup_seconds: session.warmup.as_secs_f64(),
            timeout_seconds: session.load.timeout.as_secs_f64(),
            chaos_seconds: session.chaos.map(|interval| interval.as_secs_f64()),
        }
    }

    /// As `64 queries at a time over 4 connections, payload of 200 B, 1 message of 200 B`.
    fn load(&self) -> String {
        let queries = words::count(self.concurrency as u64, "query", "queries");
        let connections = words::count(self.connections as u64, "connection", "connections");
        let payload = words::size(self.payload_size as u64);
        let mut text = format!("{queries} at a time over {connections}, payload of {payload}");
        if let (Some(messages), Some(size)) = (self.messages, self.size) {
            let messages = words::count(messages, "message", "messages");
            let _ = write!(text, ", {messages} of {}", words::size(size));
        }
        text
    }
}

impl Report {
    pub(super) fn render(&self) -> String {
        let subjects = self.subjects();
        let mut text = properties(&[("endpoint", self.settings.endpoint.clone()), ("load", self.settings.load())]);
        let _ = write!(text, "\n{}\n{}", counts(&subjects), latencies(&subjects));
        for (name, figures) in &subjects {
            text.push_str(&errors(name, figures));
        }
        let conclusions = self.conclusions();
        if !conclusions.is_empty() {
            let _ = write!(text, "\n{conclusions}");
        }
        if self.summary.interrupted {
            text.push_str("\ninterrupted: this is what was measured until then\n");
        }
        text
    }

    fn subjects(&self) -> Vec<(&'static str, &Figures)> {
        let Summary { remuda, baseline, chaos, .. } = &self.summary;
        let baseline = baseline.as_ref().map(|baseline| ("baseline", baseline));
        let chaos = chaos.as_ref().map(|chaos| ("chaos", &chaos.figures));
        [Some(("remuda", remuda)), baseline, chaos].into_iter().flatten().collect()
    }

    /// What the figures mean beside each other.
    fn conclusions(&self) -> String {
        let Summary { ratio, single, chaos, .. } = &self.summary;
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

fn counts(subjects: &[(&str, &Figures)]) -> String {
    let mut table = Table::new(&[
        ("SERVER", Align::Left),
        ("COMPLETED", Align::Right),
        ("FAILED", Align::Right),
        ("HUNG", Align::Right),
        ("SECONDS", Align::Right),
        ("QUERIES/S", Align::Right),
        ("MESSAGES/S", Align::Right),
    ]);
    let bad = |count: u64| if count == 0 { Cell::from(count) } else { Cell::styled(count, BAD) };
    for (name, figures) in subjects {
        table.row([
            Cell::from(name),
            Cell::from(figures.completed),
            bad(figures.failed),
            bad(figures.hung),
            Cell::from(format!("{:.1}", figures.seconds)),
            Cell::from(format!("{:.0}", figures.queries_per_second)),
            Cell::from(format!("{:.0}", figures.messages_per_second)),
        ]);
    }
    table.render()
}

fn latencies(subjects: &[(&str, &Figures)]) -> String {
    let mut table = Table::new(&[
        ("LATENCY", Align::Left),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ]);
    for (name, figures) in subjects {
        let rows = [("first message", figures.first_message_us), ("whole query", figures.latency_us)];
        for (what, percentiles) in rows {
            let Some(Percentiles { p50, p90, p99, p999, max }) = percentiles else { continue };
            let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(|value| Cell::from(time(value)));
            table.row([Cell::from(format!("{name}, {what}")), p50, p90, p99, p999, max]);
        }
    }
    table.render()
}

/// As `85 µs`, `1.25 ms` or `2.10 s`.
fn time(microseconds: f64) -> String {
    match microseconds {
        ..1_000.0 => format!("{microseconds:.0} µs"),
        ..1_000_000.0 => format!("{:.2} ms", microseconds / 1e3),
        _ => format!("{:.2} s", microseconds / 1e6),
    }
}

fn errors(name: &str, figures: &Figures) -> String {
    let mut text = String::new();
    for error in &figures.errors {
        let example = words::beginning(&printable(&error.example), EXAMPLE);
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
