//! The sections of the file: what they are called, where they stand, and what they are about.

/// A section of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Server,
    Pool,
    Queue,
    Recovery,
    RecoveryType,
    Retry,
    DeadLetters,
    Results,
    Kind,
}

impl Section {
    pub(super) const ALL: [Self; 9] = [
        Self::Server,
        Self::Pool,
        Self::Queue,
        Self::Recovery,
        Self::RecoveryType,
        Self::Retry,
        Self::DeadLetters,
        Self::Results,
        Self::Kind,
    ];

    /// The tables that lead to it, from the top of the file. If there is one section for each NAME,
    /// the last of them holds all of these.
    pub(super) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Server => &["server"],
            Self::Pool => &["pool"],
            Self::Queue => &["queue"],
            Self::Recovery => &["recovery"],
            Self::RecoveryType => &["recovery", "types"],
            Self::Retry => &["retry"],
            Self::DeadLetters => &["dead_letters"],
            Self::Results => &["results"],
            Self::Kind => &["kinds"],
        }
    }

    /// The name of its table at the top of the file.
    pub(super) fn table(self) -> &'static str {
        self.tables()[0]
    }

    /// What stands in the brackets of its header.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::RecoveryType => "recovery.types.NAME",
            Self::Kind => "kinds.NAME",
            other => other.table(),
        }
    }

    /// What its NAMEs are the names of, if there is one such section for each NAME.
    pub(super) fn named_after(self) -> Option<&'static str> {
        match self {
            Self::RecoveryType => Some("type"),
            Self::Kind => Some("kind"),
            _ => None,
        }
    }

    /// The tables inside it that lead to other sections.
    pub(super) fn inner_tables(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().filter_map(move |other| match other.tables() {
            [outer, inner] if [*outer] == *self.tables() => Some(*inner),
            _ => None,
        })
    }

    /// What the section is about.
    pub(super) fn doc(self) -> &'static str {
        match self {
            Self::Server => "The gRPC endpoint and the HTTP one.",
            Self::Pool => "All workers together.",
            Self::Queue => "Queries that wait for a worker.",
            Self::Recovery => {
                "What becomes of a query whose worker died under it, unless the query says otherwise \
                 or its type has a section of its own."
            }
            Self::RecoveryType => {
                "The same for queries of the type NAME, which counts more than [recovery]; one \
                 section for each such type. If every kind lists its types, NAME must be one of \
                 those."
            }
            Self::Retry => {
                "Errors that a worker reports as retryable. Such a query waits for a while and runs \
                 again; the worker is fine and goes on to others."
            }
            Self::DeadLetters => "Queries that ended in failure, kept for a person to look at, requeue or purge.",
            Self::Results => "The event log that each query keeps for its readers.",
            Self::Kind => {
                "Kinds of worker, one section for each; at least one. NAME is 1 to 63 of a-z, 0-9, \
                 _ and -, starting with a letter. Only `command` is required."
            }
        }
    }
}
