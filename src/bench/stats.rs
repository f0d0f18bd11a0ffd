//! Statistics of one or more rounds: counts are sums, rates and percentiles are medians of the rounds.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::round::{ErrorStats, Round, RoundCounts};

/// Statistics of one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubjectStats {
    /// Completed, failed and hung queries.
    pub queries: u64,
    pub completed: u64,
    pub failed: u64,
    pub hung: u64,
    pub messages: u64,
    pub seconds: f64,
    /// Of completed queries.
    pub queries_per_second: f64,
    pub messages_per_second: f64,
    /// Of whole queries, in microseconds; `None` if none completed.
    pub latency_us: Option<Percentiles>,
    pub first_message_us: Option<Percentiles>,
    pub errors: Vec<ErrorStats>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
}

impl SubjectStats {
    #[must_use]
    pub(super) fn of(rounds: &[&Round]) -> Self {
        let mut all = RoundCounts::new();
        for round in rounds {
            all.add(&round.counts);
        }
        let failed = all.failed();
        let rate = |count: fn(&RoundCounts) -> u64| {
            median(rounds.iter().map(|round| per_second(count(&round.counts), round))).unwrap_or_default()
        };
        Self {
            queries: all.completed + failed + all.hung,
            completed: all.completed,
            failed,
            hung: all.hung,
            messages: all.messages,
            seconds: rounds.iter().map(|round| round.took.as_secs_f64()).sum(),
            queries_per_second: rate(|counts| counts.completed),
            messages_per_second: rate(|counts| counts.messages),
            latency_us: Percentiles::of(rounds, |counts| &counts.latency),
            first_message_us: Percentiles::of(rounds, |counts| &counts.first_message),
            errors: all.errors.into_values().collect(),
        }
    }

    /// True if every query completed.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        self.completed == self.queries
    }
}

impl Percentiles {
    fn of(rounds: &[&Round], part: fn(&RoundCounts) -> &Histogram<u64>) -> Option<Self> {
        let at = |quantile: f64| {
            let measured = rounds.iter().map(|round| part(&round.counts)).filter(|histogram| !histogram.is_empty());
            median(measured.map(|histogram| microseconds(histogram.value_at_quantile(quantile))))
        };
        Some(Self { p50: at(0.5)?, p90: at(0.9)?, p99: at(0.99)?, p999: at(0.999)?, max: at(1.0)? })
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count is that large")]
fn per_second(count: u64, round: &Round) -> f64 {
    count as f64 / round.took.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "no time is that long")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

/// The middle value; of an even number, the mean of the middle two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::CallFailure;

    fn round(completed: u64, milliseconds: u64) -> Round {
        let mut counts = RoundCounts::new();
        for _ in 0..completed {
            counts.record_completed(2, Duration::from_millis(milliseconds), Some(Duration::from_millis(1)));
        }
        Round { counts, took: Duration::from_secs(2), killed: 0 }
    }

    #[test]
    fn counts_are_sums_and_rates_and_percentiles_medians() {
        let stats = SubjectStats::of(&[&round(10, 5), &round(40, 3), &round(20, 100)]);
        assert_eq!((stats.queries, stats.completed, stats.messages), (70, 70, 140));
        assert!(stats.all_complete());
        assert!((stats.queries_per_second - 10.0).abs() < 1e-9 && (stats.messages_per_second - 20.0).abs() < 1e-9);
        let whole = stats.latency_us.unwrap();
        assert!((whole.p50 / 5_000.0 - 1.0).abs() < 1e-3 && (whole.max / 5_000.0 - 1.0).abs() < 1e-3, "{whole:?}");
        assert!((stats.seconds - 6.0).abs() < 1e-9);
    }

    #[test]
    fn failures_are_counted_by_status_with_the_first_text() {
        let mut failing = round(1, 1);
        for message in ["queue full", "queue still full"] {
            failing.counts.record_failure(CallFailure { code: "RESOURCE_EXHAUSTED", message: message.to_owned() });
        }
        failing.counts.hung += 1;
        let stats = SubjectStats::of(&[&failing, &round(1, 1)]);
        assert_eq!((stats.queries, stats.completed, stats.failed, stats.hung), (5, 2, 2, 1));
        assert!(!stats.all_complete());
        let error = ErrorStats { code: "RESOURCE_EXHAUSTED", count: 2, example: "queue full".to_owned() };
        assert_eq!(stats.errors, [error]);
    }

    #[test]
    fn nothing_measured_has_no_percentiles() {
        let stats = SubjectStats::of(&[&Round { counts: RoundCounts::new(), took: Duration::from_secs(1), killed: 0 }]);
        assert_eq!((stats.latency_us, stats.first_message_us, stats.queries), (None, None, 0));
        assert!(median([1.0, 2.0, 4.0, 3.0].into_iter()).is_some_and(|median| (median - 2.5).abs() < 1e-9));
    }
}
