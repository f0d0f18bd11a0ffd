//! The circuit breaker of a kind: restarts are delayed longer after each failed start, until queries fail at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{error, info};

use crate::{model::DeathCertificate, state::CircuitState};

use super::{events::PoolEventBody, kinds::PoolKind};

/// Failed starts of a kind's workers.
#[derive(Debug, Default)]
pub(super) struct StartFailures {
    /// Consecutive workers that ended before they had served a query.
    pub count: u32,
    last_failed_start: Option<Instant>,
    /// Earliest time of the next start.
    pub not_before: Option<Instant>,
    pub last_failure: Option<Arc<DeathCertificate>>,
    /// A worker has started after the failures, but has not served a query yet.
    half_open: bool,
}

impl StartFailures {
    fn circuit(&self, limit: u32) -> CircuitState {
        match self.count >= limit {
            false => CircuitState::Closed,
            true if self.half_open => CircuitState::HalfOpen,
            true => CircuitState::Open,
        }
    }
}

impl PoolKind {
    fn circuit_limit(&self) -> u32 {
        self.config().circuit_failures.get()
    }

    /// Records the end of a worker, and delays the next start if it was a failed start.
    pub(super) fn record_worker_end(&self, certificate: &Arc<DeathCertificate>, now: Instant) {
        let mut failures = self.start_failures.lock();
        if certificate.cause.is_failure() {
            failures.last_failure = Some(certificate.clone());
        }
        // A worker that died before its first query counts as a failed start too: one that crashes as soon as it is
        // ready would otherwise be restarted without a delay for ever.
        let has_served = certificate.queries_processed > 0 || certificate.query.is_some();
        if !certificate.cause.is_failure() || has_served {
            return;
        }
        let started = now.checked_sub(certificate.uptime).unwrap_or(now);
        if failures.last_failed_start.is_some_and(|at| started < at) {
            // It was started before another one failed: workers that fail together count once.
            return;
        }
        let limit = self.circuit_limit();
        let was_open = failures.circuit(limit) == CircuitState::Open;
        failures.last_failed_start = Some(now);
        failures.count += 1;
        failures.half_open = false;
        failures.not_before = Some(now + self.backoff(failures.count));
        if failures.circuit(limit) == CircuitState::Open && !was_open {
            let count = failures.count;
            error!(kind = %self.name, failures = count, "circuit opened: workers do not start, queries fail at once");
            self.emit_circuit(CircuitState::Open, format!("the last {count} starts failed; {}", certificate.summary()));
        }
    }

    /// Half opens an open circuit when a worker has started.
    pub(super) fn record_start(&self) {
        let mut failures = self.start_failures.lock();
        if failures.circuit(self.circuit_limit()) == CircuitState::Open {
            failures.half_open = true;
            let reason = "a worker has started, queries are let through to it";
            info!(kind = %self.name, "circuit half open: {reason}");
            self.emit_circuit(CircuitState::HalfOpen, reason.to_owned());
        }
    }

    /// Closes the circuit when a worker has served, unless it was started before the last failure and so proves nothing.
    pub(super) fn record_recovery(&self, started: Instant) {
        let mut failures = self.start_failures.lock();
        if failures.count == 0 || failures.last_failed_start.is_some_and(|at| started < at) {
            return;
        }
        self.report_recovery(&failures, "workers serve again");
        failures.count = 0;
        failures.not_before = None;
        failures.half_open = false;
    }

    /// Closes the circuit after a change of the configuration: failures of the old one say nothing about the new one.
    pub(super) fn reset_start_failures(&self) {
        let failures = std::mem::take(&mut *self.start_failures.lock());
        self.report_recovery(&failures, "the configuration changed");
    }

    fn report_recovery(&self, failures: &StartFailures, reason: &str) {
        if failures.count >= self.circuit_limit() {
            info!(kind = %self.name, "circuit closed: {reason}");
            self.emit_circuit(CircuitState::Closed, reason.to_owned());
        }
    }

    pub(super) fn circuit(&self) -> CircuitState {
        self.start_failures.lock().circuit(self.circuit_limit())
    }

    /// Reason why the circuit is open, if it is.
    pub(super) fn circuit_open_reason(&self) -> Option<String> {
        let failures = self.start_failures.lock();
        let last = failures.last_failure.as_ref()?;
        let is_open = failures.circuit(self.circuit_limit()) == CircuitState::Open;
        is_open.then(|| format!("the last {} starts failed; {}", failures.count, last.summary()))
    }

    /// Doubles with every failure up to its maximum; the jitter keeps kinds from starting in step.
    fn backoff(&self, failures: u32) -> Duration {
        let config = self.config();
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = config.restart_backoff.saturating_mul(factor).min(config.restart_backoff_max);
        delay.mul_f64(0.75 + fastrand::f64() * 0.25)
    }

    fn emit_circuit(&self, state: CircuitState, reason: String) {
        self.events.emit(Some(&self.name), || PoolEventBody::Circuit { state, reason });
    }
}
