//! The figures of one or more rounds, as they are printed: counts are sums, rates and percentiles are medians of the rounds.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::round::{Round, Tally};

/// What rounds of load have shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Begun: completed, failed and hung.
    pub queries: u64,
    pub completed: u64,
    pub failed: u64,
    pub hung: u64,
    pub messages: u64,
    pub seconds: f64,
    /// Of those that completed.
    pub queries_per_second: f64,
    pub messages_per_second: f64,
    /// Of whole queries, in microseconds; `None` if none completed.
    pub latency_us: Option<Percentiles>,
    pub first_message_us: Option<Percentiles>,
    pub errors: Vec<ErrorFigures>,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorFigures {
    /// The name of the gRPC status.
    pub code: &'static str,
    pub count: u64,
    pub example: String,
}

impl Figures {
    #[must_use]
    pub(super) fn of(rounds: &[&Round]) -> Self {
        let mut all = Tally::new();
        for round in rounds {
            all.add(&round.tally);
        }
        let failed = all.count_failed();
        let rate = |count: fn(&Tally) -> u64| median(rounds.iter().map(|round| per_second(count(&round.tally), round)));
        let error = |(&code, errors): (&&'static str, &super::round::Errors)| ErrorFigures {
            code,
            count: errors.count,
            example: errors.example.clone(),
        };
        Self {
            queries: all.completed + failed + all.hung,
            completed: all.completed,
            failed,
            hung: all.hung,
            messages: all.messages,
            seconds: rounds.iter().map(|round| round.took.as_secs_f64()).sum(),
            queries_per_second: rate(|tally| tally.completed).unwrap_or_default(),
            messages_per_second: rate(|tally| tally.messages).unwrap_or_default(),
            latency_us: Percentiles::of(rounds, |tally| &tally.whole),
            first_message_us: Percentiles::of(rounds, |tally| &tally.first),
            errors: all.errors.iter().map(error).collect(),
        }
    }

    /// Whether every query gave its result.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        self.completed == self.queries
    }
}

impl Percentiles {
    fn of(rounds: &[&Round], part: fn(&Tally) -> &Histogram<u64>) -> Option<Self> {
        let at = |quantile: f64| {
            let measured = rounds.iter().map(|round| part(&round.tally)).filter(|histogram| !histogram.is_empty());
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

/// The value in the middle; with an even number, the mean of the two.
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
    use crate::client::Failed;

    fn round(completed: u64, milliseconds: u64) -> Round {
        let mut tally = Tally::new();
        for _ in 0..completed {
            tally.completed(2, Duration::from_millis(milliseconds), Some(Duration::from_millis(1)));
        }
        Round { tally, took: Duration::from_secs(2) }
    }

    #[test]
    fn counts_are_sums_and_rates_and_percentiles_medians() {
        let figures = Figures::of(&[&round(10, 5), &round(40, 3), &round(20, 100)]);
        assert_eq!((figures.queries, figures.completed, figures.messages), (70, 70, 140));
        assert!(figures.all_complete());
        assert!((figures.queries_per_second - 10.0).abs() < 1e-9 && (figures.messages_per_second - 20.0).abs() < 1e-9);
        let whole = figures.latency_us.unwrap();
        assert!((whole.p50 / 5_000.0 - 1.0).abs() < 1e-3 && (whole.max / 5_000.0 - 1.0).abs() < 1e-3, "{whole:?}");
        assert!((figures.seconds - 6.0).abs() < 1e-9);
    }

    #[test]
    fn failures_are_counted_by_status_with_the_first_text() {
        let mut failing = round(1, 1);
        for message in ["queue full", "queue still full"] {
            failing.tally.failed(Failed { code: "RESOURCE_EXHAUSTED", message: message.to_owned() });
        }
        failing.tally.hung += 1;
        let figures = Figures::of(&[&failing, &round(1, 1)]);
        assert_eq!((figures.queries, figures.completed, figures.failed, figures.hung), (5, 2, 2, 1));
        assert!(!figures.all_complete());
        let error = ErrorFigures { code: "RESOURCE_EXHAUSTED", count: 2, example: "queue full".to_owned() };
        assert_eq!(figures.errors, [error]);
    }

    #[test]
    fn nothing_measured_has_no_percentiles() {
        let figures = Figures::of(&[&Round { tally: Tally::new(), took: Duration::from_secs(1) }]);
        assert_eq!((figures.latency_us, figures.first_message_us, figures.queries), (None, None, 0));
        assert!(median([1.0, 2.0, 4.0, 3.0].into_iter()).is_some_and(|median| (median - 2.5).abs() < 1e-9));
    }
}
