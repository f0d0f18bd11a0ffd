//! Keys of `[recovery]` and `[recovery.types.NAME]`: queries whose worker died while running them.

use std::collections::BTreeMap;

use super::super::format::Optional;
use super::super::numbers::Integer;
use super::super::reader::SectionReader;
use super::super::schema::{ConfigKey, Effect, Fallback, KeyValue, Section, keys};
use super::super::strings::{Choice, words};

keys! {
    pub(in crate::config) struct RecoveryKeys, RecoverySettings {
        /// "reject" ends the query in an error; "retry" runs it again, on another worker. Reject by default, because
        /// only you know if the half-done work may be done again.
        strategy: Strategy = Choice, Default("reject"), Applied;
        /// Further runs of such a query, 1 to 100; only with strategy = "retry". Once by default, so it runs twice at
        /// most: that makes up for an accident, and a query that kills its workers does not kill many.
        attempts: Option<u32> = Optional(Integer(1..=100)), Dependent(1), Applied;
    }
}

/// The keys of `[recovery.types.NAME]`: those of `[recovery]`, with other defaults.
pub(in crate::config) const TYPE_KEYS: &[ConfigKey] = &[
    ConfigKey::new(
        "strategy",
        Fallback::Required("\"retry\"", "write strategy = \"retry\" or strategy = \"reject\""),
        Effect::Applied,
        "\"reject\" or \"retry\", as above: retry queries that do no harm when they run twice. Required, since such a \
         section exists to set it.",
    ),
    ConfigKey::new(
        "attempts",
        Fallback::Dependent("1"),
        Effect::Applied,
        "As above: further runs of such a query; only with strategy = \"retry\". Once by default here too, whatever \
         [recovery] says, so that each section can be read alone.",
    ),
];

words! {
    /// Fate of a query, without the number of attempts, which goes with one of the two in [`Recovery`].
    pub(in crate::config) enum Strategy {
        Reject = "reject",
        Retry = "retry",
    }
}

/// Fate of a query whose worker died while running it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The query ends in an error.
    Reject,
    /// The query runs again on another worker, at most this many times more; at least once.
    Retry { attempts: u32 },
}

/// Fate of queries whose worker died while running them, by type.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryConfig {
    pub default: Recovery,
    /// By query type; these override the default.
    pub types: BTreeMap<String, Recovery>,
}

impl RecoveryConfig {
    /// The recovery of queries of this type, or of none.
    #[must_use]
    pub fn for_type(&self, query_type: Option<&str>) -> Recovery {
        let own = query_type.and_then(|name| self.types.get(name));
        own.copied().unwrap_or(self.default)
    }
}

impl Recovery {
    pub(in crate::config) fn read(section: &SectionReader<'_>) -> Self {
        let settings = RecoverySettings::read(section);
        if settings.strategy.valid() == Some(&Strategy::Reject) && settings.attempts.written().is_some() {
            let problem =
                "has no effect while `strategy` is \"reject\": write strategy = \"retry\", or remove `attempts`";
            section.report(&settings.attempts, problem);
        }
        let RecoveryKeys { strategy, attempts } = settings.into_config();
        match strategy {
            Strategy::Reject => Self::Reject,
            Strategy::Retry => Self::Retry { attempts: attempts.unwrap_or(1) },
        }
    }

    pub(in crate::config) fn entries(self, section: &Section) -> Vec<KeyValue> {
        let (strategy, attempts) = match self {
            Self::Reject => (Strategy::Reject, None),
            Self::Retry { attempts } => (Strategy::Retry, Some(attempts)),
        };
        RecoveryKeys { strategy, attempts }.entries(section)
    }
}
