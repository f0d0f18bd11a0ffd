//! How a kind copes with workers that do not start: it waits longer each time, and then fails its queries at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{error, info};

use crate::{model::DeathCertificate, state::CircuitState};

use super::{events::PoolEventBody, kinds::Kind};

/// What keeps a kind from having the workers it should have.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Workers in a row that ended before they were of any use.
    pub failed_starts: u32,
    last_failed_start: Option<Instant>,
    /// No worker is started before this.
    pub not_before: Option<Instant>,
    pub last_failure: Option<Arc<DeathCertificate>>,
    /// A worker came up after failures and has yet to prove its use.
    half_open: bool,
}

impl Trouble {
    /// Whether the kind's queries fail at once.
    fn is_open(&self, limit: u32) -> bool {
        self.failed_starts >= limit && !self.half_open
    }
}

impl Kind {
    /// Records a worker's end and how long to wait before the next start.
    pub(super) fn ended(&self, certificate: &Arc<DeathCertificate>, now: Instant) {
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
        let limit = self.config().circuit_failures.get();
        let was_open = trouble.is_open(limit);
        trouble.last_failed_start = Some(now);
        trouble.failed_starts += 1;
        trouble.half_open = false;
        trouble.not_before = Some(now + self.backoff(trouble.failed_starts));
        if trouble.is_open(limit) && !was_open {
            let failures = trouble.failed_starts;
            error!(kind = %self.name, failures, "circuit opened: workers do not start, queries fail at once");
            self.tell(CircuitState::Open, || format!("the last {failures} starts failed; {}", certificate.summary()));
        }
    }

    /// A worker is ready that may end a row of failures: queries are let through to it.
    pub(super) fn probe_is_ready(&self) {
        let mut trouble = self.trouble.lock();
        if trouble.is_open(self.config().circuit_failures.get()) {
            trouble.half_open = true;
            info!(kind = %self.name, "circuit half open: a worker has started, queries are let through to it");
            self.tell(CircuitState::HalfOpen, || "a worker has started, queries are let through to it".to_owned());
        }
    }

    /// A worker that was started at `born` has proved to be of use. One that is older than the last failure proves
    /// nothing about it.
    pub(super) fn recovered(&self, born: Instant) {
        let mut trouble = self.trouble.lock();
        if trouble.failed_starts == 0 || trouble.last_failed_start.is_some_and(|at| born < at) {
            return;
        }
        if trouble.failed_starts >= self.config().circuit_failures.get() {
            info!(kind = %self.name, "circuit closed: workers serve again");
            self.tell(CircuitState::Closed, || "workers serve again".to_owned());
        }
        trouble.failed_starts = 0;
        trouble.not_before = None;
        trouble.half_open = false;
    }

    /// Trouble with an old configuration says nothing about a new one.
    pub(super) fn forget_trouble(&self) {
        let trouble = std::mem::take(&mut *self.trouble.lock());
        if trouble.failed_starts >= self.config().circuit_failures.get() {
            info!(kind = %self.name, "circuit closed: the configuration changed");
            self.tell(CircuitState::Closed, || "the configuration changed".to_owned());
        }
    }

    pub(super) fn circuit(&self) -> CircuitState {
        let trouble = self.trouble.lock();
        match trouble.failed_starts >= self.config().circuit_failures.get() {
            false => CircuitState::Closed,
            true if trouble.half_open => CircuitState::HalfOpen,
            true => CircuitState::Open,
        }
    }

    /// Why the kind's queries fail at once, if they do.
    pub(super) fn circuit_reason(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        let last = trouble.last_failure.as_ref()?;
        let open = trouble.is_open(self.config().circuit_failures.get());
        open.then(|| format!("the last {} starts failed; {}", trouble.failed_starts, last.summary()))
    }

    /// Doubles with every failure up to its maximum; the jitter keeps kinds from starting in step.
    fn backoff(&self, failures: u32) -> Duration {
        let config = self.config();
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = config.restart_backoff.saturating_mul(factor).min(config.restart_backoff_max);
        delay.mul_f64(0.75 + fastrand::f64() * 0.25)
    }

    fn tell(&self, state: CircuitState, reason: impl FnOnce() -> String) {
        self.events.emit(Some(&self.name), || PoolEventBody::Circuit { state, reason: reason() });
    }
}
