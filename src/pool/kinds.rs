//! The kinds of a pool: which one serves a query, and how each is doing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use thiserror::Error;
use tracing::{error, info};

use crate::{config::KindConfig, metrics::KindMetrics, model::Certificate};

use super::Inner;

#[derive(Debug)]
pub(super) struct Kind {
    pub config: Arc<KindConfig>,
    pub metrics: Arc<KindMetrics>,
    pub environment: Vec<(String, String)>,
    pub trouble: Mutex<Trouble>,
}

/// What keeps a kind from having the workers it should have.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Workers in a row that ended before they were of any use.
    pub failed_starts: u32,
    last_failed_start: Option<Instant>,
    /// No worker is started before this.
    pub not_before: Option<Instant>,
    pub last_failure: Option<Arc<Certificate>>,
    /// A worker came up after failures and has yet to prove its use.
    half_open: bool,
}

impl Trouble {
    /// Whether the kind's queries fail at once.
    fn is_open(&self, limit: u32) -> bool {
        self.failed_starts >= limit && !self.half_open
    }
}

/// No kind can be found for a query.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unroutable {
    #[error("there is no kind {kind:?}; this pool has: {known}")]
    NoSuchKind { kind: String, known: String },
    #[error("no kind serves the type {query_type:?}; name a kind, or one of the types of: {known}")]
    NoSuchType { query_type: String, known: String },
    #[error("the query names neither kind nor type, and this pool has several kinds: {known}")]
    Unnamed { known: String },
}

impl Unroutable {
    /// The field of the query to look at.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoSuchKind { .. } | Self::Unnamed { .. } => "query.kind",
            Self::NoSuchType { .. } => "query.type",
        }
    }
}

impl Kind {
    pub(super) fn new(config: KindConfig, metrics: Arc<KindMetrics>, environment: Vec<(String, String)>) -> Self {
        Self { config: Arc::new(config), metrics, environment, trouble: Mutex::default() }
    }

    /// Records a worker's end and how long to wait before the next start.
    pub(super) fn ended(&self, certificate: &Arc<Certificate>, now: Instant) {
        let mut trouble = self.trouble.lock();
        if certificate.cause.is_failure() {
            trouble.last_failure = Some(certificate.clone());
        }
        // A worker that died before its first query counts too, or one that crashes as soon as it is ready would be
        // replaced in an endless hurry.
        let was_of_use = certificate.queries_processed > 0 || certificate.query.is_some();
        if !certificate.cause.is_failure() || was_of_use {
            return;
        }
        let born = now.checked_sub(certificate.uptime).unwrap_or(now);
        if trouble.last_failed_start.is_some_and(|at| born < at) {
            // It was started along with one that failed before: one wave of failures is one failure.
            return;
        }
        let limit = self.config.circuit_failures.get();
        let was_open = trouble.is_open(limit);
        trouble.last_failed_start = Some(now);
        trouble.failed_starts += 1;
        trouble.half_open = false;
        trouble.not_before = Some(now + self.backoff(trouble.failed_starts));
        if trouble.is_open(limit) && !was_open {
            let failures = trouble.failed_starts;
            error!(kind = %self.config.name, failures, "circuit opened: workers do not start, queries fail at once");
        }
    }

    /// A worker is ready that may end a row of failures: queries are let through to it.
    pub(super) fn probe_is_ready(&self) {
        let mut trouble = self.trouble.lock();
        if trouble.is_open(self.config.circuit_failures.get()) {
            trouble.half_open = true;
            info!(kind = %self.config.name, "circuit half open: a worker has started, queries are let through to it");
        }
    }

    /// A worker that was started at `born` has proved to be of use. One that is older than the last failure proves
    /// nothing about it.
    pub(super) fn recovered(&self, born: Instant) {
        let mut trouble = self.trouble.lock();
        if trouble.failed_starts == 0 || trouble.last_failed_start.is_some_and(|at| born < at) {
            return;
        }
        if trouble.failed_starts >= self.config.circuit_failures.get() {
            info!(kind = %self.config.name, "circuit closed: workers serve again");
        }
        trouble.failed_starts = 0;
        trouble.not_before = None;
        trouble.half_open = false;
    }

    /// Why the kind's queries fail at once, if they do.
    pub(super) fn circuit_reason(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        let last = trouble.last_failure.as_ref().filter(|_| trouble.is_open(self.config.circuit_failures.get()))?;
        Some(format!("the last {} starts failed; {}", trouble.failed_starts, last.summary()))
    }

    /// Doubles with every failure up to its maximum; the jitter keeps kinds from starting in step.
    fn backoff(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.config.restart_backoff.saturating_mul(factor).min(self.config.restart_backoff_max);
        delay.mul_f64(0.75 + fastrand::f64() * 0.25)
    }
}

impl Inner {
    /// Picks the kind for a query: the one it names, the one that serves its type, or the only one there is.
    pub(super) fn route(&self, kind: Option<&str>, query_type: Option<&str>) -> Result<usize, Unroutable> {
        if let Some(name) = kind {
            return self
                .kind_named(name)
                .ok_or_else(|| Unroutable::NoSuchKind { kind: name.to_owned(), known: self.known_kinds() });
        }
        let serves =
            |wanted: &str| self.kinds.iter().position(|kind| kind.config.types.iter().any(|served| served == wanted));
        match (query_type.and_then(serves), self.kinds.len(), query_type) {
            (Some(kind), _, _) => Ok(kind),
            (None, 1, None) => Ok(0),
            // A kind that lists no types serves any.
            (None, 1, Some(_)) if self.kinds[0].config.types.is_empty() => Ok(0),
            (None, _, Some(query_type)) => {
                Err(Unroutable::NoSuchType { query_type: query_type.to_owned(), known: self.known_kinds() })
            }
            (None, _, None) => Err(Unroutable::Unnamed { known: self.known_kinds() }),
        }
    }

    pub(super) fn kind_named(&self, name: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| *kind.config.name == *name)
    }

    fn known_kinds(&self) -> String {
        let describe = |kind: &Kind| match kind.config.types.as_slice() {
            [] => kind.config.name.to_string(),
            types => format!("{} (types {})", kind.config.name, types.join(", ")),
        };
        self.kinds.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}
