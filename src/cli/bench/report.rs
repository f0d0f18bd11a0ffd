//! What a run has shown, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::{
    bench::{Figures, Percentiles},
    cli::{
        output::printable,
        table::{Align, Cell, Table, properties},
        words,
    },
};

/// Everything that was asked for and measured; the help describes it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Report {
    pub settings: Settings,
    pub interrupted: bool,
    pub remuda: Figures,
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
    pub timeout_seconds: f64,
}

impl Report {
    pub(super) fn render(&self) -> String {
        let mut text = properties(&[
            ("endpoint", self.settings.endpoint.clone()),
            ("load", self.settings.load()),
            ("queries", outcome(&self.remuda)),
            ("rate", rates(&self.remuda)),
        ]);
        let _ = write!(text, "\n{}", latencies(&self.remuda));
        text.push_str(&errors(&self.remuda));
        if self.interrupted {
            text.push_str("\ninterrupted: this is what was measured until then\n");
        }
        text
    }
}

impl Settings {
    /// As `64 at a time over 4 connections, 1 message of 200 B for a payload of 200 B`.
    fn load(&self) -> String {
        let connections = words::count(self.connections as u64, "connection", "connections");
        let payload = words::size(self.payload_size as u64);
        let mut text = format!("{} at a time over {connections}, payload of {payload}", self.concurrency);
        if let (Some(messages), Some(size)) = (self.messages, self.size) {
            let messages = words::count(messages, "message", "messages");
            let _ = write!(text, ", {messages} of {}", words::size(size));
        }
        text
    }
}

fn outcome(figures: &Figures) -> String {
    let Figures { completed, failed, hung, seconds, .. } = figures;
    format!("{completed} completed, {failed} failed, {hung} hung in {seconds:.1} s")
}

fn rates(figures: &Figures) -> String {
    format!("{:.0} queries/s, {:.0} messages/s", figures.queries_per_second, figures.messages_per_second)
}

fn latencies(figures: &Figures) -> String {
    let mut table = Table::new(&[
        ("LATENCY", Align::Left),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ]);
    let rows = [("first message", figures.first_message_us), ("whole query", figures.latency_us)];
    for (name, percentiles) in rows {
        let Some(Percentiles { p50, p90, p99, p999, max }) = percentiles else { continue };
        let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(|time| Cell::from(self::time(time)));
        table.row([Cell::from(name), p50, p90, p99, p999, max]);
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

fn errors(figures: &Figures) -> String {
    let mut text = String::new();
    for error in &figures.errors {
        let example = words::beginning(&printable(&error.example), 200);
        let _ = writeln!(text, "\n{} failed with {}, as: {example}", error.count, error.code);
    }
    text
}
