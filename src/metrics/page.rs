//! The page that lists every metric, and the arithmetic of how many series there are.

use std::fmt::Write;

use super::{
    family::{PER_HISTOGRAM, combinations},
    label::{Label, Values},
    table::{Definition, Shape, TABLE},
};

const INTRODUCTION: &str = "\
# Metrics

Generated from the table in `src/metrics/table.rs`; do not edit. To write it anew: `UPDATE_METRICS=1 cargo test metrics_page`.

They are served at `/metrics` on the address of `server.http`, in Prometheus's text format. Every series stands at zero from the start
(a kind's from when it is configured), so `rate` and alerts work before the first event. Durations are in seconds, sizes in bytes;
a `count` is of what the name says, and a `state` is a number that stands for something.

## What to watch

- **Can queries start?** `remuda_serving == 0` for a kind; `remuda_circuit_state == 2` says that its workers do not start.
- **Do they wait too long?** `remuda_queue_oldest_seconds`, and the quantiles of `remuda_queue_wait_seconds`. Growing while
  `sum by (kind) (remuda_workers)` is at `remuda_workers_limit{limit=\"max\"}`: the kind needs a larger `max`, or the pool more room.
- **Is the queue filling?** `sum(remuda_queue_depth) / remuda_queue_limit`, and `rate(remuda_submit_refused_total[5m])`.
- **Do queries fail?** `rate(remuda_query_failures_total[5m])` by reason; `increase(remuda_dead_letters_total[1h]) > 0` wants a person.
- **Do workers die?** `rate(remuda_worker_exits_total{cause=~\"crash|oom_kernel|oom_limit|no_heartbeat|protocol_error\"}[5m])`, and
  `remuda_worker_silence_seconds` before they do.
- **Is a client slow?** `rate(remuda_reader_stalls_total[5m])`; `rate(remuda_events_dropped_total[5m])` says that it may have missed events.
- **Is the server itself well?** `process_open_fds / process_max_fds`, `process_resident_memory_bytes`,
  `rate(process_cpu_seconds_total[5m])`.
";

/// The whole page, for an API with these methods.
#[must_use]
pub fn page(methods: &[String]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n## All metrics\n\n| name | type | unit | labels | what it tells |\n|---|---|---|---|---|\n";
    for metric in TABLE {
        let labels: Vec<String> = metric.labels.iter().map(|label| described(*label)).collect();
        let (name, shape, unit, help) = (metric.name, metric.shape.name(), metric.unit.name(), metric.help);
        let _ = writeln!(page, "| `{name}` | {shape} | {unit} | {} | {help} |", labels.join("; "));
    }
    page += &bounds(methods.len());
    page
}

/// As `limit`: `min`, `max`.
fn described(label: Label) -> String {
    let names: Vec<String> = label.names().iter().map(|name| format!("`{name}`")).collect();
    let values = match label.values() {
        Values::Known(text) => text.to_owned(),
        Values::Fixed(_) if label == Label::Version => "the version".to_owned(),
        Values::Fixed(values) => {
            let words: Vec<String> = values.iter().map(|value| format!("`{}`", value.join(" → "))).collect();
            words.join(", ")
        }
    };
    format!("{}: {values}", names.join(" → "))
}

fn bounds(methods: usize) -> String {
    let buckets = PER_HISTOGRAM - 3;
    let (server, kind, typed, method) =
        (series(0, 0, 0), series(1, 0, 0) - series(0, 0, 0), series(1, 1, 0) - series(1, 0, 0), of_methods(1));
    let called = methods + 1;
    format!(
        "
## How many series there are

No label holds anything that a client can make up: no id, key, owner or pid, and a type only if it is configured. The `type` of a kind is
one of its own `types`, or one of `[recovery.types]` that no other kind lists; all others count as `other`, and queries without one as
`none`. A histogram is {PER_HISTOGRAM} series: {buckets} buckets from 50 µs to 10 min, the one without a bound, the sum and the count. So there are always exactly

    {server} + {method} × methods + {kind} × kinds + {typed} × types

series, where `methods` is {called} ({methods} methods of the API, and `other`), `kinds` counts the kinds that were configured since the
start, and `types` the types of all of them, as above. With one kind and no types that is {}.
",
        series(1, 0, called)
    )
}

/// How many series there are with so many kinds, configured types of all of them together, and methods (with the one for
/// those that do not exist).
#[must_use]
pub fn series(kinds: usize, types: usize, methods: usize) -> usize {
    let of_server = TABLE.iter().filter(|metric| !metric.is_of(Label::Kind) && !metric.is_of(Label::Method));
    let of_kind = TABLE.iter().filter(|metric| metric.is_of(Label::Kind));
    let each_kind: usize = of_kind.clone().map(|metric| with(metric, &["none", "other"])).sum();
    let each_type: usize = of_kind.filter(|metric| metric.is_of(Label::Type)).map(|metric| with(metric, &["t"])).sum();
    let server: usize = of_server.map(|metric| with(metric, &[])).sum();
    server + kinds * each_kind + types * each_type + of_methods(methods)
}

fn of_methods(methods: usize) -> usize {
    let of_method = TABLE.iter().filter(|metric| metric.is_of(Label::Method));
    methods * of_method.map(|metric| with(metric, &[])).sum::<usize>()
}

/// The series of one metric for one kind, or one method, with these types.
fn with(metric: &Definition, types: &[&str]) -> usize {
    let known = |label| if label == Label::Type { types } else { &["x"] };
    let each = if metric.shape == Shape::Histogram { PER_HISTOGRAM } else { 1 };
    combinations(metric, known).len() * each
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api,
        metrics::{Metrics, table::Unit},
    };

    #[test]
    fn every_series_is_there_from_the_start_and_the_formula_counts_them() {
        let metrics = Metrics::new();
        let count = || metrics.render().lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count(), series(0, 0, 0));
        let methods = api::methods();
        let _ = metrics.methods(&methods);
        let _ = metrics.kind("a");
        assert_eq!(count(), series(1, 0, methods.len() + 1));
        let _ = metrics.kind("b");
        metrics.know_types("b", &["x", "y"]);
        metrics.know_types("b", &["y"]);
        assert_eq!(count(), series(2, 2, methods.len() + 1));
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in TABLE {
            let name = metric.name;
            assert!(name.starts_with("remuda_") || name.starts_with("process_"), "{name}");
            assert_eq!(metric.shape.name() == "counter", name.ends_with("_total"), "{name}");
            assert!(metric.shape != Shape::Histogram || metric.unit == Unit::Seconds, "{name}");
            // The unit of a measure stands at the end of its name, but for `_total`.
            let measured = name.trim_end_matches("_total");
            for (unit, ending) in [(Unit::Seconds, "_seconds"), (Unit::Bytes, "_bytes")] {
                assert_eq!(metric.unit == unit, measured.ends_with(ending), "{name} is of {:?}", metric.unit);
            }
            assert!(metric.unit != Unit::State || metric.shape == Shape::Gauge, "{name}");
            assert!(metric.help.ends_with('.'), "{name}");
            assert_eq!(TABLE.iter().filter(|other| other.name == name).count(), 1, "{name}");
        }
    }
}
