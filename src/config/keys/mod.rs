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

use super::schema::Section;

use confinement::Confinement;
use dead_letters::DeadLettersConfig;
use kind::KindConfig;
use pool::PoolConfig;
use queue::QueueConfig;
use recovery::RecoveryKeys;
use results::ResultsConfig;
use retry::RetryConfig;
use server::ServerConfig;

// The sections with their headers, their documentation and their keys.
pub(super) const SERVER: Section = Section::new("server", "The gRPC and HTTP endpoints.", &[ServerConfig::KEYS]);
pub(super) const POOL: Section = Section::new("pool", "All workers together.", &[PoolConfig::KEYS]);
pub(super) const QUEUE: Section = Section::new("queue", "Queries that wait for a worker.", &[QueueConfig::KEYS]);
pub(super) const RECOVERY: Section = Section::new(
    "recovery",
    "Fate of a query whose worker died while running it, unless the query says otherwise or its type has a section \
     of its own.",
    &[RecoveryKeys::KEYS],
);
pub(super) const RECOVERY_TYPE: Section = Section::new(
    "recovery.types.NAME",
    "The same for queries of the type NAME, in place of [recovery]; one section for each such type. If every kind \
     lists its types, NAME must be one of those.",
    &[recovery::TYPE_KEYS],
);
pub(super) const RETRY: Section = Section::new(
    "retry",
    "Errors that a worker reports as retryable. Such a query waits for a while and runs again; the worker is fine \
     and goes on to others.",
    &[RetryConfig::KEYS],
);
pub(super) const DEAD_LETTERS: Section = Section::new(
    "dead_letters",
    "Queries that ended in failure, kept for a person to look at, requeue or purge.",
    &[DeadLettersConfig::KEYS],
);
pub(super) const RESULTS: Section =
    Section::new("results", "The event log that each query keeps for its readers.", &[ResultsConfig::KEYS]);
pub(super) const KIND: Section = Section {
    unsupported: &["retry"],
    ..Section::new(
        "kinds.NAME",
        "Kinds of worker, one section for each; at least one. NAME is 1 to 63 of a-z, 0-9, _ and -, starting with a \
         letter. Only `command` is required.",
        &[KindConfig::KEYS, Confinement::KEYS],
    )
};

/// Every section, in the order of the example file.
pub(super) const SECTIONS: [&Section; 9] =
    [&SERVER, &POOL, &QUEUE, &RECOVERY, &RECOVERY_TYPE, &RETRY, &DEAD_LETTERS, &RESULTS, &KIND];
