//! What a whole run has shown: the figures of each subject, and what they mean beside each other.

use serde::Serialize;

use super::{
    round::Round,
    stats::Figures,
    subject::{Outcome, Subject},
};

/// The rounds of a run.
#[derive(Debug, Default)]
pub struct Results {
    rounds: Vec<(Subject, Round)>,
    killed: u64,
    pub(super) interrupted: bool,
}

/// What the rounds come to; the names are those of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub interrupted: bool,
    pub remuda: Figures,
    pub baseline: Option<Figures>,
    pub ratio: Option<Ratio>,
    pub single: Option<Single>,
    pub chaos: Option<UnderChaos>,
}

/// The pool's figures divided by the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    pub queries_per_second: f64,
    pub messages_per_second: Option<f64>,
    pub latency_p50: Option<f64>,
}

/// One query at a time: the pool beside what a call and a worker take by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Single {
    pub remuda_p50_us: f64,
    pub unary_p50_us: f64,
    pub raw_p50_us: f64,
    /// The first by the sum of the others.
    pub ratio: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnderChaos {
    pub killed: u64,
    pub failed: u64,
    pub hung: u64,
    /// The rate, divided by that of the undisturbed rounds.
    pub rate_kept: Option<f64>,
    pub figures: Figures,
}

impl Results {
    pub(super) fn add(&mut self, subject: Subject, outcome: Outcome) {
        self.rounds.push((subject, outcome.round));
        self.killed += outcome.killed;
    }

    #[must_use]
    pub fn summary(&self) -> Summary {
        let remuda = self.figures(Subject::Pool).unwrap_or_else(|| Figures::of(&[]));
        let baseline = self.figures(Subject::Baseline);
        Summary {
            interrupted: self.interrupted,
            ratio: baseline.as_ref().and_then(|baseline| Ratio::new(&remuda, baseline)),
            single: self.single(&remuda),
            chaos: self.figures(Subject::Chaos).map(|figures| UnderChaos {
                killed: self.killed,
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
    fn figures(&self, subject: Subject) -> Option<Figures> {
        let rounds: Vec<_> = self.rounds.iter().filter(|(of, _)| *of == subject).map(|(_, round)| round).collect();
        (!rounds.is_empty()).then(|| Figures::of(&rounds))
    }

    fn single(&self, remuda: &Figures) -> Option<Single> {
        let p50 = |figures: &Figures| figures.latency_us.map(|latency| latency.p50);
        let remuda_p50_us = p50(remuda)?;
        let unary_p50_us = p50(&self.figures(Subject::Unary)?)?;
        let raw_p50_us = p50(&self.figures(Subject::Raw)?)?;
        let ratio = quotient(remuda_p50_us, unary_p50_us + raw_p50_us)?;
        Some(Single { remuda_p50_us, unary_p50_us, raw_p50_us, ratio })
    }
}

impl Ratio {
    fn new(pool: &Figures, baseline: &Figures) -> Option<Self> {
        let latency = pool.latency_us.zip(baseline.latency_us);
        Some(Self {
            queries_per_second: quotient(pool.queries_per_second, baseline.queries_per_second)?,
            messages_per_second: quotient(pool.messages_per_second, baseline.messages_per_second),
            latency_p50: latency.and_then(|(pool, baseline)| quotient(pool.p50, baseline.p50)),
        })
    }
}

impl Summary {
    /// Whether every query gave its result, wherever it ran.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        let others = [self.baseline.as_ref(), self.chaos.as_ref().map(|chaos| &chaos.figures)];
        self.remuda.all_complete() && others.into_iter().flatten().all(Figures::all_complete)
    }
}

/// `None` by zero.
fn quotient(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::round::Tally, *};

    fn round(queries: u64, latency: Duration) -> Outcome {
        let mut tally = Tally::new();
        (0..queries).for_each(|_| tally.completed(1, latency, Some(latency)));
        Outcome { round: Round { tally, took: Duration::from_secs(1) }, killed: 0 }
    }

    fn is(value: f64, wanted: f64) -> bool {
        (value / wanted - 1.0).abs() < 2e-3
    }

    #[test]
    fn pool_is_put_beside_the_floor() {
        let mut results = Results::default();
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
    fn what_chaos_left_is_told_beside_the_undisturbed_rate() {
        let mut results = Results::default();
        results.add(Subject::Pool, round(100, Duration::from_millis(1)));
        let mut disturbed = round(90, Duration::from_millis(1));
        (disturbed.killed, disturbed.round.tally.hung) = (3, 1);
        results.add(Subject::Chaos, disturbed);
        let summary = results.summary();
        assert!(!summary.all_complete() && summary.remuda.all_complete());
        let chaos = summary.chaos.unwrap();
        assert_eq!((chaos.killed, chaos.failed, chaos.hung), (3, 0, 1));
        assert!(is(chaos.rate_kept.unwrap(), 0.9));
    }

    #[test]
    fn run_that_was_over_before_it_began_has_no_ratios() {
        let mut results = Results::default();
        results.add(Subject::Baseline, round(0, Duration::ZERO));
        let summary = results.summary();
        assert_eq!((summary.ratio, summary.remuda.queries), (None, 0));
    }
}
