//! Keys whose value is one of a few words: how these are read, and how they are written.

use super::model::{Affinity, Balance, Compression, Eviction, Overflow, Transport};
use super::problem::Problem;
use super::suggest::quote;
use super::tree::{Node, Value};

pub(super) const TRANSPORTS: Choice<Transport> =
    Choice { words: &[("socket", Transport::Socket), ("stdio", Transport::Stdio)] };

pub(super) const OVERFLOWS: Choice<Overflow> =
    Choice { words: &[("gap", Overflow::Gap), ("stall", Overflow::Stall), ("fail", Overflow::Fail)] };

pub(super) const EVICTIONS: Choice<Eviction> = Choice {
    words: &[
        ("lru", Eviction::Lru),
        ("oldest", Eviction::Oldest),
        ("least_used", Eviction::LeastUsed),
        ("largest", Eviction::Largest),
    ],
};

pub(super) const AFFINITIES: Choice<Affinity> =
    Choice { words: &[("off", Affinity::Off), ("prefer", Affinity::Prefer), ("strict", Affinity::Strict)] };

pub(super) const BALANCES: Choice<Balance> = Choice {
    words: &[
        ("round_robin", Balance::RoundRobin),
        ("least_loaded", Balance::LeastLoaded),
        ("most_recent", Balance::MostRecent),
    ],
};

pub(super) const COMPRESSIONS: Choice<Compression> =
    Choice { words: &[("gzip", Compression::Gzip), ("zstd", Compression::Zstd)] };

/// What the HTTP side serves.
pub(super) const HTTP_PATHS: Choice<&str> =
    Choice { words: &[("/", "/"), ("/metrics", "/metrics"), ("/livez", "/livez"), ("/readyz", "/readyz")] };

/// The model has no such type: there the number of attempts goes with the strategy that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Reject,
    Retry,
}

pub(super) const STRATEGIES: Choice<Strategy> =
    Choice { words: &[("reject", Strategy::Reject), ("retry", Strategy::Retry)] };

/// A few words, and what each stands for.
#[derive(Debug)]
pub(super) struct Choice<T: 'static> {
    words: &'static [(&'static str, T)],
}

impl<T: Copy + PartialEq> Choice<T> {
    pub(super) fn parse(&self, node: &Node) -> Result<T, Problem> {
        let Value::Text(text) = &node.value else {
            return Err(Problem::NotAWord { choices: self.list(), got: node.value.type_name() });
        };
        let found = self.words.iter().find(|(word, _)| word == text);
        let not_a_choice = || Problem::NotAChoice { text: quote(text), choices: self.list() };
        found.map(|(_, value)| *value).ok_or_else(not_a_choice)
    }

    /// The word for `value`.
    pub(super) fn word(&self, value: T) -> &'static str {
        let found = self.words.iter().find(|(_, other)| *other == value);
        found.expect("each value has its word").0
    }

    fn list(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        words.join(", ")
    }
}
