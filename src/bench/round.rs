//! Counts what became of the queries of one round.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use crate::client::Failed;

/// Three digits are more than a shared machine gives.
const DIGITS: u8 = 3;
/// In nanoseconds; what takes longer counts as this.
const LONGEST: u64 = 3_600_000_000_000;

/// What became of the queries of one round, and how long it took.
#[derive(Debug)]
pub(super) struct Round {
    pub tally: Tally,
    pub took: Duration,
}

#[derive(Debug)]
pub(super) struct Tally {
    pub completed: u64,
    pub hung: u64,
    pub messages: u64,
    /// From the call to the end of its stream, in nanoseconds.
    pub whole: Histogram<u64>,
    /// From the call to the first message.
    pub first: Histogram<u64>,
    pub errors: BTreeMap<&'static str, Errors>,
}

/// The failures with one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Errors {
    pub count: u64,
    /// What the first of them said.
    pub example: String,
}

impl Tally {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are valid");
        Self { completed: 0, hung: 0, messages: 0, whole: histogram(), first: histogram(), errors: BTreeMap::new() }
    }

    pub(super) fn completed(&mut self, messages: u64, whole: Duration, first: Option<Duration>) {
        self.completed += 1;
        self.messages += messages;
        self.whole.saturating_record(nanoseconds(whole));
        if let Some(first) = first {
            self.first.saturating_record(nanoseconds(first));
        }
    }

    pub(super) fn failed(&mut self, failed: Failed) {
        self.errors.entry(failed.code).or_insert(Errors { count: 0, example: failed.message }).count += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.hung += other.hung;
        self.messages += other.messages;
        self.whole.add(&other.whole).expect("both have the same bounds");
        self.first.add(&other.first).expect("both have the same bounds");
        for (code, errors) in &other.errors {
            let own = self.errors.entry(code).or_insert_with(|| Errors { count: 0, ..errors.clone() });
            own.count += errors.count;
        }
    }

    pub(super) fn count_failed(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
