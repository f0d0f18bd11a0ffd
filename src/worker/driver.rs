//! The task that lives one worker's life: start, service, end.

use std::{sync::Arc, time::Instant, time::SystemTime};

use tracing::{Instrument, Span, info, warn};

use crate::{
    model::{DeathCause, DeathCertificate, Exit, StopStage},
    state::WorkerState,
};

use super::{
    Conclusion, Host, PoolWorker, SocketDir, Spawner,
    connection::Connection,
    end::End,
    output::Drains,
    process::Process,
    running::{LettingGo, Running, Why, try_of},
    sandbox::LaunchFailure,
    socket::PrivateDir,
    usage,
    vitals::Expectations,
};

/// What a worker is started with beside its kind.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub spawner: Spawner,
    pub sockets: Arc<SocketDir>,
    /// All of the worker's environment but the variables that tell it who it is.
    pub environment: Arc<[(String, String)]>,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub worker: Arc<PoolWorker>,
    pub host: Arc<dyn Host>,
    pub surroundings: Surroundings,
    pub process: Option<Process>,
    pub connection: Option<Connection>,
    pub drains: Drains,
    pub running: Option<Running>,
    /// Its working directory, if that is its own.
    pub private: Option<PrivateDir>,
    /// To be compared with at the end.
    pub oom_kills_before: Option<u64>,
}

/// Lives a worker's whole life and returns its death certificate.
pub async fn run(worker: Arc<PoolWorker>, host: Arc<dyn Host>, surroundings: Surroundings) -> Arc<DeathCertificate> {
    let started = Instant::now();
    let mut driver = Driver::new(worker, host, surroundings);
    let end = match driver.start().await {
        Ok(()) => driver.serve().await,
        Err(end) => end,
    };
    driver.finish(end, started).await
}

impl Driver {
    pub(super) fn new(worker: Arc<PoolWorker>, host: Arc<dyn Host>, surroundings: Surroundings) -> Self {
        Self {
            worker,
            host,
            surroundings,
            process: None,
            connection: None,
            drains: Drains::default(),
            running: None,
            private: None,
            oom_kills_before: None,
        }
    }

    /// The one way out, for every way a worker can end.
    pub(super) async fn finish(mut self, end: End, started: Instant) -> Arc<DeathCertificate> {
        self.leave_service(end.cause);
        self.measure();
        let (exit, stage) = self.stop_process(end.farewell).await;
        self.connection = None;
        let stderr = std::mem::take(&mut self.drains).finish().await;
        let certificate = Arc::new(self.certify(end, exit, &stderr, started));
        self.span().in_scope(|| log_end(&certificate));
        if let Some(running) = self.running.take() {
            // A last word that waited for slow readers was said before the end, and counts.
            let conclusion = match running.verdict {
                Some(verdict) => Running::conclusion(running.letting_go, verdict),
                None => conclude_by_end(running.letting_go.as_ref(), &certificate, stage),
            };
            let worker = self.worker.clone();
            let span = running.attempt.end(conclusion.trouble().as_deref(), try_of(&running.lease, worker.id));
            let concluded = self.host.conclude(&worker, running.lease, running.backlog, conclusion);
            concluded.instrument(span).await;
        }
        if let Some(private) = self.private.take() {
            private.remove().await;
        }
        self.worker.forget_task();
        let _ = self.worker.step_to(WorkerState::Dead, "reaped", None);
        certificate
    }

    /// That of the attempt it is busy with, if any.
    pub(super) fn span(&self) -> Span {
        let span = |running: &Running| running.attempt.span(try_of(&running.lease, self.worker.id));
        self.running.as_ref().map_or_else(Span::none, span)
    }

    pub(super) fn measure(&self) {
        if let Some(reading) = self.process.as_ref().and_then(Process::usage) {
            self.worker.measured(reading);
        }
    }

    pub(super) fn expectations(&self) -> Expectations {
        let kind = &self.worker.kind;
        Expectations {
            heartbeats: self.worker.sends_heartbeats(),
            warning: kind.heartbeat_warning,
            timeout: kind.heartbeat_timeout,
            ping_interval: kind.ping_interval,
        }
    }

    /// From here on the worker takes no query; one that was just handed over is taken along.
    fn leave_service(&mut self, cause: DeathCause) {
        let state = if cause.is_failure() { WorkerState::Failed } else { WorkerState::Evicting };
        let _ = self.worker.step_to(state, cause.name(), self.worker.query().as_ref());
        self.pick_up();
    }

    /// A SIGKILL that we did not send, while the kernel killed someone for lack of memory, was likely the kernel's.
    fn judge(&self, cause: DeathCause, exit: Exit) -> DeathCause {
        let killed = cause == DeathCause::Crash && exit == Exit::Signal(libc::SIGKILL);
        let kills_since = usage::oom_kills().zip(self.oom_kills_before).map(|(now, before)| now.saturating_sub(before));
        if killed && kills_since.is_some_and(|kills| kills > 0) { DeathCause::OomKernel } else { cause }
    }

    fn certify(&self, end: End, exit: Exit, stderr: &str, started: Instant) -> DeathCertificate {
        let snapshot = self.worker.snapshot();
        let program = self.worker.kind.command.first().map_or("", String::as_str);
        DeathCertificate {
            worker: self.worker.id,
            kind: self.worker.kind.name.clone(),
            pid: snapshot.pid,
            cause: self.judge(end.cause, exit),
            exit,
            detail: end.story.tell(exit, stderr, program),
            query: snapshot.query,
            uptime: started.elapsed(),
            queries_processed: snapshot.queries_processed,
            peak_rss: snapshot.peak_rss,
            stderr_tail: LaunchFailure::strip(stderr),
            at: SystemTime::now(),
        }
    }
}

/// What a worker's end means for the query it was running.
fn conclude_by_end(
    letting_go: Option<&LettingGo>,
    certificate: &Arc<DeathCertificate>,
    stage: StopStage,
) -> Conclusion {
    match letting_go.map(|letting_go| &letting_go.why) {
        Some(Why::Cancel(reason)) => Conclusion::Cancelled { reason: reason.clone(), stage },
        Some(Why::Timeout(limit)) => {
            Conclusion::TimedOut { limit: *limit, stage, certificate: Some(certificate.clone()) }
        }
        Some(Why::Overflow) => Conclusion::Overflowed,
        Some(Why::Lost) => Conclusion::LeaseLost,
        Some(Why::Stop) | None => Conclusion::Died(certificate.clone()),
    }
}

fn log_end(certificate: &DeathCertificate) {
    let (worker, kind, cause) = (certificate.worker.0, &certificate.kind, certificate.cause.name());
    if certificate.cause.is_failure() {
        warn!(worker, %kind, cause, pid = certificate.pid, "{}", certificate.summary());
    } else {
        info!(worker, %kind, cause, pid = certificate.pid, exit = %certificate.exit, "worker stopped");
    }
}
