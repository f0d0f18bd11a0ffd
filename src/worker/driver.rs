//! The task that runs one worker from its start to its death certificate.

use std::{
    mem,
    sync::Arc,
    time::{Instant, SystemTime},
};

use tracing::{Instrument, Span, debug, error, info, warn};

use crate::{
    model::{DeathCause, DeathCertificate, Exit},
    state::{ConnectionState, WorkerState, transition},
};

use super::{
    conclusion::Conclusion,
    connection::WorkerConnection,
    end_reason::EndReason,
    host::Host,
    output::OutputReader,
    pool_worker::PoolWorker,
    process::{Process, Spawner},
    running::{Death, RunningQuery},
    runtime_dir::{PrivateDir, RuntimeDir},
    sandbox::LaunchFailure,
    usage,
};

/// Everything beside its kind that a worker is started with.
#[derive(Debug, Clone)]
pub struct SpawnContext {
    pub spawner: Spawner,
    pub runtime_dir: Arc<RuntimeDir>,
    /// The worker's environment without the variables that identify it.
    pub environment: Arc<[(String, String)]>,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub worker: Arc<PoolWorker>,
    pub host: Arc<dyn Host>,
    pub context: SpawnContext,
    pub process: Option<Process>,
    pub connection: Option<WorkerConnection>,
    connection_state: ConnectionState,
    pub output: OutputReader,
    pub running: Option<RunningQuery>,
    /// The worker's own directory, if its kind gives it one.
    pub private_dir: Option<PrivateDir>,
    /// The kernel's count of out-of-memory kills at the start of the worker.
    pub oom_kills_before: Option<u64>,
}

/// Runs a worker for its whole life and returns its death certificate.
pub async fn run(worker: Arc<PoolWorker>, host: Arc<dyn Host>, context: SpawnContext) -> Arc<DeathCertificate> {
    let started = Instant::now();
    let mut driver = Driver::new(worker, host, context);
    let end = match driver.start().await {
        Ok(()) => driver.serve().await,
        Err(end) => end,
    };
    driver.finish(end, started).await
}

impl Driver {
    pub(super) fn new(worker: Arc<PoolWorker>, host: Arc<dyn Host>, context: SpawnContext) -> Self {
        Self {
            worker,
            host,
            context,
            process: None,
            connection: None,
            connection_state: ConnectionState::Disconnected,
            output: OutputReader::default(),
            running: None,
            private_dir: None,
            oom_kills_before: None,
        }
    }

    /// The one way out, for every way in which a worker can end.
    ///
    /// The order matters: the worker takes no more queries, its process is stopped and reaped, the certificate is written,
    /// the running query is concluded with it, and only then the worker is `Dead` and may be removed.
    pub(super) async fn finish(mut self, end: EndReason, started: Instant) -> Arc<DeathCertificate> {
        self.leave_service(end.cause);
        self.measure();
        let (exit, stage) = self.stop_process(end.stop_method).await;
        self.connection = None;
        if self.connection_state != ConnectionState::Disconnected {
            self.advance_connection(ConnectionState::Disconnected);
        }
        let stderr = mem::take(&mut self.output).finish().await;
        let certificate = Arc::new(self.certify(end, exit, &stderr, started));
        self.span().in_scope(|| log_end(&certificate));
        if let Some(mut running) = self.running.take()
            && let Some(conclusion) = running.conclusion(Some(Death { certificate: certificate.clone(), stage }))
        {
            self.conclude(running, conclusion).await;
        }
        if let Some(private_dir) = self.private_dir.take() {
            private_dir.remove().await;
        }
        self.worker.lock.lock().query = None;
        self.worker.step_to(WorkerState::Dead, "reaped", None);
        certificate
    }

    pub(super) fn advance_connection(&mut self, to: ConnectionState) {
        let (worker, from) = (self.worker.id, self.connection_state);
        match transition(from, to) {
            Ok(()) => debug!(%worker, %from, %to, "connection to the worker changed"),
            Err(error) => error!(%worker, %error, "connection to the worker in an impossible state"),
        }
        self.connection_state = to;
    }

    /// Hands a query that the worker is done with to the host.
    pub(super) async fn conclude(&self, running: RunningQuery, conclusion: Conclusion) {
        let (lease, outputs, span) = running.finish(&conclusion);
        self.host.conclude(&self.worker, lease, outputs, conclusion).instrument(span).await;
    }

    /// The span of the running attempt, if any.
    pub(super) fn span(&self) -> Span {
        self.running.as_ref().map_or_else(Span::none, RunningQuery::span)
    }

    pub(super) fn measure(&self) {
        if let Some(reading) = self.process.as_ref().and_then(Process::read_usage) {
            self.worker.record_usage(reading);
        }
    }

    /// From here on the worker takes no query. One that was started in the meantime is taken along.
    fn leave_service(&mut self, cause: DeathCause) {
        let state = if cause.is_failure() { WorkerState::Failed } else { WorkerState::Evicting };
        let query = self.worker.lock.lock().query.clone();
        self.worker.step_to(state, cause.name(), query.as_ref());
        self.take_started();
    }

    /// Takes over a query that was started since the last look.
    pub(super) fn take_started(&mut self) {
        if let (_, Some(started)) = self.worker.take_started() {
            self.running = Some(started);
        }
    }

    /// A SIGKILL that we did not send, while the kernel killed processes for lack of memory, was likely the kernel's.
    fn refine_cause(&self, cause: DeathCause, exit: Exit) -> DeathCause {
        let was_killed = cause == DeathCause::Crash && exit == Exit::Signal(libc::SIGKILL);
        let kills_since = usage::oom_kills().zip(self.oom_kills_before).map(|(now, before)| now.saturating_sub(before));
        if was_killed && kills_since.is_some_and(|kills| kills > 0) { DeathCause::OomKernel } else { cause }
    }

    fn certify(&self, end: EndReason, exit: Exit, stderr: &str, started: Instant) -> DeathCertificate {
        let snapshot = self.worker.snapshot();
        DeathCertificate {
            worker: self.worker.id,
            kind: self.worker.kind.name.clone(),
            pid: snapshot.pid,
            cause: self.refine_cause(end.cause, exit),
            exit,
            detail: end.detail.text(exit, stderr),
            query: snapshot.query,
            uptime: started.elapsed(),
            queries_processed: snapshot.stats.queries_processed,
            peak_rss: snapshot.peak_rss,
            stderr_tail: LaunchFailure::strip(stderr),
            at: SystemTime::now(),
        }
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
