//! The configuration's keys: one file for each section, with a declaration for each key and the rules between them.

pub(super) mod confinement;
pub(super) mod dead_letters;
pub(super) mod kind;
pub(super) mod pool;
pub(super) mod queue;
pub(super) mod recovery;
pub(super) mod results;
pub(super) mod retry;
pub(super) mod server;

use super::schema::ConfigKey;

use confinement::Confinement;
use dead_letters::DeadLettersConfig;
use kind::KindConfig;
use pool::PoolConfig;
use queue::QueueConfig;
use recovery::{RecoveryKeys, TypeRecoveryKeys};
use results::ResultsConfig;
use retry::RetryConfig;
use server::ServerConfig;

/// Suffix of a header that stands for any number of sections, each with a NAME of its own.
const NAME: &str = ".NAME";

/// A section of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// The text in the brackets of its header.
    pub(super) header: &'static str,
    pub(super) doc: &'static str,
    tables: &'static [&'static [ConfigKey]],
    /// Keys that are planned, but that this version does not know.
    pub(super) unsupported: &'static [&'static str],
}

pub(super) const SERVER: Section = section("server", "The gRPC and HTTP endpoints.", &[ServerConfig::KEYS]);
pub(super) const POOL: Section = section("pool", "All workers together.", &[PoolConfig::KEYS]);
pub(super) const QUEUE: Section = section("queue", "Queries that wait for a worker.", &[QueueConfig::KEYS]);
pub(super) const RECOVERY: Section = section(
    "recovery",
    "Fate of a query whose worker died while running it, unless the query says otherwise or its type has a section \
     of its own.",
    &[RecoveryKeys::KEYS],
);
pub(super) const RECOVERY_TYPE: Section = section(
    "recovery.types.NAME",
    "The same for queries of the type NAME, in place of [recovery]; one section for each such type. If every kind \
     lists its types, NAME must be one of those.",
    &[TypeRecoveryKeys::KEYS],
);
pub(super) const RETRY: Section = section(
    "retry",
    "Errors that a worker reports as retryable. Such a query waits for a while and runs again; the worker is fine \
     and goes on to others.",
    &[RetryConfig::KEYS],
);
pub(super) const DEAD_LETTERS: Section = section(
    "dead_letters",
    "Queries that ended in failure, kept for a person to look at, requeue or purge.",
    &[DeadLettersConfig::KEYS],
);
pub(super) const RESULTS: Section =
    section("results", "The event log that each query keeps for its readers.", &[ResultsConfig::KEYS]);
pub(super) const KIND: Section = Section {
    unsupported: &["retry"],
    ..section(
        "kinds.NAME",
        "Kinds of worker, one section for each; at least one. NAME is 1 to 63 of a-z, 0-9, _ and -, starting with a \
         letter. Only `command` is required.",
        &[KindConfig::KEYS, Confinement::KEYS],
    )
};

/// Every section, in the order of the example file.
pub(super) const SECTIONS: [&Section; 9] =
    [&SERVER, &POOL, &QUEUE, &RECOVERY, &RECOVERY_TYPE, &RETRY, &DEAD_LETTERS, &RESULTS, &KIND];

const fn section(header: &'static str, doc: &'static str, tables: &'static [&'static [ConfigKey]]) -> Section {
    Section { header, doc, tables, unsupported: &[] }
}

impl Section {
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static ConfigKey> {
        self.tables.iter().copied().flatten()
    }

    /// True if there is one such section for each NAME.
    pub(super) fn is_named(&self) -> bool {
        self.header.ends_with(NAME)
    }

    /// The tables that lead to it, from the top of the file; of a named section the last one holds all of them.
    pub(super) fn path<'a>(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let header: &'a str = self.header;
        header.trim_end_matches(NAME).split('.')
    }

    /// The name of its table at the top of the file.
    pub(super) fn root(&self) -> &'static str {
        self.path().next().expect("a header has a first part")
    }

    /// The tables inside it that lead to other sections.
    pub(super) fn inner_tables(&self) -> impl Iterator<Item = &'static str> {
        let header = self.header;
        SECTIONS.iter().filter_map(move |other| {
            let (outer, inner) = other.header.trim_end_matches(NAME).split_once('.')?;
            (outer == header).then_some(inner)
        })
    }
}
