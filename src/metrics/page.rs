//! The page `docs/metrics.md`, and the number of series.

use std::fmt::Write;

use super::{
    family::{SERIES_PER_HISTOGRAM, label_combinations},
    label::{LabelValues, MetricLabel},
    table::{METRICS, MetricDefinition, MetricType},
};

const INTRODUCTION: &str = "\
# Metrics

Generated from the table in `src/metrics/table.rs`; do not edit. To regenerate: `UPDATE_METRICS=1 cargo test metrics_page`.

The metrics are served at `/metrics` on the address of `server.http`, in Prometheus's text format. Every series stands at zero from the
start (a kind's series once the kind is configured), so `rate` and alerts work before the first event. Durations are in seconds, sizes in
bytes; the name of a `count` says what it counts, and the help of a `state` says what each number means.

## What to watch

- **Can queries start?** `remuda_serving == 0` for a kind; `remuda_circuit_state == 2` means that its workers do not start.
- **Do they wait too long?** `remuda_queue_oldest_seconds`, and the quantiles of `remuda_queue_wait_seconds`. Growing while
  `sum by (kind) (remuda_workers)` is at `remuda_workers_limit{limit=\"max\"}`: the kind needs a larger `max`, or the pool more room.
- **Is the queue filling?** `sum(remuda_queue_depth) / remuda_queue_limit`, and `rate(remuda_submit_refused_total[5m])`.
- **Do queries fail?** `rate(remuda_query_failures_total[5m])` by reason; `increase(remuda_dead_letters_total[1h]) > 0` needs a person.
- **Do workers die?** `rate(remuda_worker_exits_total{cause=~\"crash|oom_kernel|oom_limit|no_heartbeat|protocol_error\"}[5m])`, and
  `remuda_worker_silence_seconds` before they do.
- **Is a client slow?** `rate(remuda_reader_stalls_total[5m])`; `rate(remuda_events_dropped_total[5m])` means that it may have missed events.
- **Is the server itself well?** `process_open_fds / process_max_fds`, `process_resident_memory_bytes`,
  `rate(process_cpu_seconds_total[5m])`.
";

/// Contents of `docs/metrics.md` for an API with these methods.
#[must_use]
pub fn page(methods: &[String]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n## All metrics\n\n| name | type | unit | labels | description |\n|---|---|---|---|---|\n";
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| describe(*label)).collect();
        let (name, shape, unit, help) = (metric.name, metric.metric_type.name(), metric.unit.name(), metric.help);
        let _ = writeln!(page, "| `{name}` | {shape} | {unit} | {} | {help} |", labels.join("; "));
    }
    page += &series_section(methods.len());
    page
}

/// Formats a label as "`limit`: `min`, `max`".
fn describe(label: MetricLabel) -> String {
    let names: Vec<String> = label.names().iter().map(|name| format!("`{name}`")).collect();
    let values = match label.values() {
        LabelValues::Configured(text) => text.to_owned(),
        LabelValues::Fixed(_) if label == MetricLabel::Version => "the version".to_owned(),
        LabelValues::Fixed(values) => {
            let words: Vec<String> = values.iter().map(|value| format!("`{}`", value.join(" → "))).collect();
            words.join(", ")
        }
    };
    format!("{}: {values}", names.join(" → "))
}

fn series_section(methods: usize) -> String {
    let buckets = SERIES_PER_HISTOGRAM - 3;
    let server = series_count(0, 0, 0);
    let (kind, method) = (series_count(1, 0, 0) - server, series_count(0, 0, 1) - server);
    let typed = series_count(0, 1, 0) - server;
    let called = methods + 1;
    format!(
        "
## Number of series

No label holds a value that a client can make up: no id, key, owner or pid, and a type only if it is configured. The `type` of a kind is
one of its own `types`, or one of `[recovery.types]` that no other kind lists; every other type counts as `other`, no type as
`none`. A histogram is {SERIES_PER_HISTOGRAM} series: {buckets} buckets from 50 µs to 10 min, the unbounded bucket, the sum and the count. So there are always exactly

    {server} + {method} × methods + {kind} × kinds + {typed} × types

series, where `methods` is {called} ({methods} methods of the API, and `other`), `kinds` counts the kinds configured since the
start, and `types` the types of all kinds. With one kind and no types that is {}.
",
        series_count(1, 0, called)
    )
}

/// Number of series with this many kinds, configured types over all kinds, and methods, `other` included.
#[must_use]
pub fn series_count(kinds: usize, types: usize, methods: usize) -> usize {
    let count = |metric: &MetricDefinition| {
        if metric.has(MetricLabel::Method) {
            return methods * series_of(metric, &[]);
        }
        if !metric.has(MetricLabel::Kind) {
            return series_of(metric, &[]);
        }
        let of_types = if metric.has(MetricLabel::Type) { types * series_of(metric, &["t"]) } else { 0 };
        kinds * series_of(metric, &["none", "other"]) + of_types
    };
    METRICS.iter().map(count).sum()
}

/// Series of one metric for one kind, or one method, with these types.
fn series_of(metric: &MetricDefinition, types: &[&str]) -> usize {
    let configured = |label| if label == MetricLabel::Type { types } else { &["x"] };
    let each = if metric.metric_type == MetricType::Histogram { SERIES_PER_HISTOGRAM } else { 1 };
    label_combinations(metric, configured).len() * each
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api,
        metrics::{Metrics, table::MetricUnit},
    };

    #[test]
    fn series_exist_from_the_start_and_the_formula_counts_them() {
        let metrics = Metrics::new();
        let count = || metrics.render().lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count(), series_count(0, 0, 0));
        let methods = api::methods();
        let _ = metrics.methods(&methods);
        let _ = metrics.kind("a");
        assert_eq!(count(), series_count(1, 0, methods.len() + 1));
        let _ = metrics.kind("b");
        metrics.add_types("b", &["x", "y"]);
        metrics.add_types("b", &["y"]);
        assert_eq!(count(), series_count(2, 2, methods.len() + 1));
    }

    #[test]
    fn metric_names_follow_the_conventions() {
        for metric in METRICS {
            let name = metric.name;
            assert!(name.starts_with("remuda_") || name.starts_with("process_"), "{name}");
            assert_eq!(metric.metric_type.name() == "counter", name.ends_with("_total"), "{name}");
            assert!(metric.metric_type != MetricType::Histogram || metric.unit == MetricUnit::Seconds, "{name}");
            // The unit of a measure stands at the end of its name, but for `_total`.
            let measured = name.trim_end_matches("_total");
            for (unit, ending) in [(MetricUnit::Seconds, "_seconds"), (MetricUnit::Bytes, "_bytes")] {
                assert_eq!(metric.unit == unit, measured.ends_with(ending), "{name} is of {:?}", metric.unit);
            }
            assert!(metric.unit != MetricUnit::State || metric.metric_type == MetricType::Gauge, "{name}");
            assert!(metric.help.ends_with('.'), "{name}");
            assert_eq!(METRICS.iter().filter(|other| other.name == name).count(), 1, "{name}");
        }
    }
}
