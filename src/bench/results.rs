//! The results of a whole run: statistics of each subject, and the ratios between them.

use serde::Serialize;

use super::{round::Round, stats::SubjectStats, subject::Subject};

/// The rounds of a run.
#[derive(Debug, Default)]
pub struct RunResults {
    rounds: Vec<(Subject, Round)>,
    pub(super) interrupted: bool,
}

/// The report of a run; the names are those of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchSummary {
    pub interrupted: bool,
    pub remuda: SubjectStats,
    pub baseline: Option<SubjectStats>,
    pub ratio: Option<BaselineRatio>,
    pub single: Option<SingleQueryRatio>,
    pub chaos: Option<ChaosStats>,
}

/// The pool's results divided by the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BaselineRatio {
    pub queries_per_second: f64,
    pub messages_per_second: Option<f64>,
    pub latency_p50: Option<f64>,
}

/// One query at a time: the pool's latency, and those of a bare call and of a bare worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SingleQueryRatio {
    pub remuda_p50_us: f64,
    pub unary_p50_us: f64,
    pub raw_p50_us: f64,
    /// The first divided by the sum of the others.
    pub ratio: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChaosStats {
    pub killed: u64,
    pub failed: u64,
    pub hung: u64,
    /// Rate divided by that of the undisturbed rounds.
    pub rate_kept: Option<f64>,
    pub figures: SubjectStats,
}

impl RunResults {
    pub(super) fn add(&mut self, subject: Subject, round: Round) {
        self.rounds.push((subject, round));
    }

    #[must_use]
    pub fn summary(&self) -> BenchSummary {
        let remuda = self.figures(Subject::Pool).unwrap_or_else(|| SubjectStats::of(&[]));
        let baseline = self.figures(Subject::Baseline);
        BenchSummary {
            interrupted: self.interrupted,
            ratio: baseline.as_ref().and_then(|baseline| BaselineRatio::new(&remuda, baseline)),
            single: self.single(&remuda),
            chaos: self.figures(Subject::Chaos).map(|figures| ChaosStats {
                killed: self.rounds.iter().map(|(_, round)| round.killed).sum(),
                failed: figures.failed,
                hung: figures.hung,
                rate_kept: quotient(figures.queries_per_second, remuda.queries_per_second),
                figures,
            }),
            remuda,
            baseline,
        }
    }

    /// `None` if it was not measured.
    fn figures(&self, subject: Subject) -> Option<SubjectStats> {
        let rounds: Vec<_> = self.rounds.iter().filter(|(of, _)| *of == subject).map(|(_, round)| round).collect();
        (!rounds.is_empty()).then(|| SubjectStats::of(&rounds))
    }

    fn single(&self, remuda: &SubjectStats) -> Option<SingleQueryRatio> {
        let p50 = |figures: &SubjectStats| figures.latency_us.map(|latency| latency.p50);
        let remuda_p50_us = p50(remuda)?;
        let unary_p50_us = p50(&self.figures(Subject::Unary)?)?;
        let raw_p50_us = p50(&self.figures(Subject::Raw)?)?;
        let ratio = quotient(remuda_p50_us, unary_p50_us + raw_p50_us)?;
        Some(SingleQueryRatio { remuda_p50_us, unary_p50_us, raw_p50_us, ratio })
    }
}

impl BaselineRatio {
    fn new(pool: &SubjectStats, baseline: &SubjectStats) -> Option<Self> {
        let latency = pool.latency_us.zip(baseline.latency_us);
        Some(Self {
            queries_per_second: quotient(pool.queries_per_second, baseline.queries_per_second)?,
            messages_per_second: quotient(pool.messages_per_second, baseline.messages_per_second),
            latency_p50: latency.and_then(|(pool, baseline)| quotient(pool.p50, baseline.p50)),
        })
    }
}

impl BenchSummary {
    /// True if every query of every subject completed.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        let others = [self.baseline.as_ref(), self.chaos.as_ref().map(|chaos| &chaos.figures)];
        self.remuda.all_complete() && others.into_iter().flatten().all(SubjectStats::all_complete)
    }
}

/// `None` if the divisor is zero.
fn quotient(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::round::RoundCounts, *};

    fn round(queries: u64, latency: Duration) -> Round {
        let mut counts = RoundCounts::new();
        (0..queries).for_each(|_| counts.record_completed(1, latency, Some(latency)));
        Round { counts, took: Duration::from_secs(1), killed: 0 }
    }

    fn is(value: f64, wanted: f64) -> bool {
        (value / wanted - 1.0).abs() < 2e-3
    }

    #[test]
    fn pool_is_compared_with_the_baseline() {
        let mut results = RunResults::default();
        results.add(Subject::Pool, round(60, Duration::from_micros(300)));
        assert_eq!((results.summary().ratio, results.summary().single), (None, None));
        results.add(Subject::Baseline, round(100, Duration::from_micros(150)));
        let ratio = results.summary().ratio.unwrap();
        assert!(is(ratio.queries_per_second, 0.6) && is(ratio.latency_p50.unwrap(), 2.0), "{ratio:?}");
        results.add(Subject::Unary, round(10, Duration::from_micros(150)));
        results.add(Subject::Raw, round(10, Duration::from_micros(50)));
        assert!(is(results.summary().single.unwrap().ratio, 1.5));
    }

    #[test]
    fn chaos_is_compared_with_the_undisturbed_rate() {
        let mut results = RunResults::default();
        results.add(Subject::Pool, round(100, Duration::from_millis(1)));
        let mut disturbed = round(90, Duration::from_millis(1));
        (disturbed.killed, disturbed.counts.hung) = (3, 1);
        results.add(Subject::Chaos, disturbed);
        let summary = results.summary();
        assert!(!summary.all_complete() && summary.remuda.all_complete());
        let chaos = summary.chaos.unwrap();
        assert_eq!((chaos.killed, chaos.failed, chaos.hung), (3, 0, 1));
        assert!(is(chaos.rate_kept.unwrap(), 0.9));
    }

    #[test]
    fn run_that_was_over_before_it_began_has_no_ratios() {
        let mut results = RunResults::default();
        results.add(Subject::Baseline, round(0, Duration::ZERO));
        let summary = results.summary();
        assert_eq!((summary.ratio, summary.remuda.queries), (None, 0));
    }
}
