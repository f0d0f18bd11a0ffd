//! A worker in service: here a line of its output becomes an entry of its query's event log.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{Instrument, Level, enabled, trace, warn};

use crate::{
    broker::{AppendError, LeaseStatus},
    model::DeathCause,
    protocol::{PoolFrame, ProtocolError, WorkerFrame},
    state::WorkerState,
};

use super::{
    StopMode,
    connection::Fill,
    driver::Driver,
    end::{End, Farewell},
    pool_worker::Intent,
    running::{LettingGo, Running, Why, try_of},
    task::Task,
    vitals::{Finding, Vitals},
    wake::{Clocks, LOOKS_EVERY, Wake},
};

/// How long a process that closed its connection has to exit before it counts as alive but disconnected.
pub(super) const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(500);
/// How many reads of 64 KiB follow the end of the process. Its last words are in the socket's buffer, which is smaller; but
/// a child of it may hold the socket and go on writing.
const READS_AFTER_EXIT: usize = 64;
/// How often the worker's memory and processor time are looked at.
const MEASURE_EVERY: Duration = LOOKS_EVERY;
const MEASURE_LIMITED_EVERY: Duration = Duration::from_secs(1);

const ELSEWHERE: &str = "the query runs elsewhere";

impl Driver {
    /// Runs queries until the worker ends or is to be stopped.
    pub(super) async fn serve(&mut self) -> End {
        let vitals = Vitals::new(self.expectations(), Instant::now().into_std());
        let mut clocks = Clocks::new(Instant::now() + self.measure_every(), vitals);
        self.host.ready(&self.worker.clone()).await;
        loop {
            if let Some(end) = self.heed_intent() {
                return end;
            }
            match self.advance().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return self.broke_protocol(&error),
            }
            let wake = self.wake(&mut clocks).await;
            if let Err(end) = self.handle(wake, &mut clocks).await {
                return end;
            }
        }
    }

    /// Takes over a query that was started since.
    pub(super) fn pick_up(&mut self) {
        let (_, task) = self.worker.news();
        self.begin(task);
    }

    fn begin(&mut self, task: Option<Task>) {
        if let Some(task) = task {
            self.running = Some(Running::new(task));
        }
    }

    /// What a requested stop asks for now.
    pub(super) fn heed_intent(&mut self) -> Option<End> {
        // Both at once: when a stop is recorded no query is started any more, so none can be overlooked.
        let (intent, task) = self.worker.news();
        self.begin(task);
        let intent = intent?;
        if intent.mode == StopMode::Kill {
            return Some(End::stopped(intent.cause, Farewell::Sigkill));
        }
        if self.running.is_none() {
            return Some(End::stopped(intent.cause, Farewell::ShutdownFrame));
        }
        if intent.mode >= StopMode::Now {
            self.let_go(Why::Stop, "the server is stopping");
        }
        None
    }

    async fn handle(&mut self, wake: Wake, clocks: &mut Clocks) -> Result<(), End> {
        match wake {
            Wake::Attention if self.worker.is_deaf() => return Err(self.closed().await),
            Wake::Attention => self.heed_order(),
            // While its readers were waited for, nobody listened to the worker: its silence begins anew.
            Wake::Appended(Ok(())) => clocks.vitals.heard(Instant::now().into_std()),
            Wake::Appended(Err(AppendError::Overflow)) => self.drop_output(Why::Overflow, "nobody keeps up with it"),
            Wake::Appended(Err(AppendError::LeaseLost(_))) => self.drop_output(Why::Lost, ELSEWHERE),
            Wake::Clock => return self.look_at(clocks, Instant::now()),
            Wake::Bytes(Fill::Data) => {
                let now = Instant::now().into_std();
                clocks.vitals.heard(now);
                self.worker.heard(now);
            }
            Wake::Bytes(Fill::End) => return Err(self.closed().await),
            Wake::Exited => return Err(self.exited().await),
        }
        Ok(())
    }

    /// What is to be done with the running query. Its order may have come before the query itself.
    fn heed_order(&mut self) {
        self.pick_up();
        match self.running.as_ref().map(|running| running.lease.status()) {
            None | Some(LeaseStatus::Active) => {}
            Some(LeaseStatus::CancelRequested { reason }) => self.let_go(Why::Cancel(reason.clone()), &reason),
            Some(LeaseStatus::Lost) => self.drop_output(Why::Lost, ELSEWHERE),
        }
    }

    fn look_at(&mut self, clocks: &mut Clocks, now: Instant) -> Result<(), End> {
        self.pick_up();
        if self.deadline().is_some_and(|at| at <= now) {
            self.out_of_time()?;
        }
        if clocks.measure <= now {
            clocks.measure = now + self.measure_every();
            self.measure();
            self.check_memory()?;
            self.connection.as_mut().expect("a worker in service is connected").shrink();
        }
        if self.next_check(clocks).is_some_and(|at| at <= now) {
            self.check_vitals(&mut clocks.vitals)?;
        }
        Ok(())
    }

    /// Tells the worker to let go of its query and gives it time to do so.
    fn let_go(&mut self, why: Why, reason: &str) {
        let grace = self.worker.kind.cancel_grace;
        let Some(running) = &mut self.running else { return };
        if running.letting_go.is_some() {
            return;
        }
        running.letting_go = Some(LettingGo { why, until: Instant::now() + grace });
        // Its answer stands behind the output that its readers are slow to take.
        running.lease.disable_backpressure();
        let request_id = running.request_id.clone();
        let reason = (!reason.is_empty()).then_some(reason);
        self.send(&PoolFrame::Cancel { request_id: &request_id, reason });
    }

    /// Nobody wants what the worker says any more.
    fn drop_output(&mut self, why: Why, reason: &str) {
        if let Some(running) = &mut self.running {
            running.backlog.clear();
        }
        self.let_go(why, reason);
    }

    fn out_of_time(&mut self) -> Result<(), End> {
        let Some(running) = &self.running else { return Ok(()) };
        match (&running.letting_go, running.timeout) {
            (Some(letting_go), _) => Err(End::held_on(self.cause_of(&letting_go.why))),
            (None, Some((limit, _))) => {
                self.let_go(Why::Timeout(limit), "the query timed out");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn cause_of(&self, why: &Why) -> DeathCause {
        match why {
            Why::Timeout(_) => DeathCause::Timeout,
            Why::Cancel(_) | Why::Lost | Why::Overflow => DeathCause::Cancel,
            Why::Stop => self.worker.intent().map_or(DeathCause::Shutdown, |intent| intent.cause),
        }
    }

    fn check_vitals(&mut self, vitals: &mut Vitals) -> Result<(), End> {
        match vitals.check(Instant::now().into_std(), self.occupation()) {
            Finding::Fine => {}
            Finding::Ask => self.send(&PoolFrame::HealthCheck),
            Finding::Worrying(silence) => {
                let kind = &self.worker.kind.name;
                let worker = self.worker.id.0;
                self.span().in_scope(|| {
                    warn!(worker, %kind, ?silence, "worker has not given a sign of life for a while");
                });
            }
            Finding::Dead(silence) => return Err(End::lifeless(silence)),
        }
        Ok(())
    }

    /// A kind with limits is looked at more often: memory can grow fast.
    fn measure_every(&self) -> Duration {
        let kind = &self.worker.kind;
        let limited = kind.memory_limit.or(kind.memory_soft).is_some();
        if limited { MEASURE_LIMITED_EVERY } else { MEASURE_EVERY }
    }

    fn check_memory(&self) -> Result<(), End> {
        let used = self.worker.samples().last().map_or(0, |sample| sample.rss);
        match self.worker.kind.memory_limit {
            Some(limit) if used > limit => Err(End::too_large(used, limit)),
            _ => Ok(()),
        }
    }

    /// Works through what has arrived, as far as it goes without waiting. True if there may be more to do.
    async fn advance(&mut self) -> Result<bool, ProtocolError> {
        if self.is_stalled() {
            return Ok(false);
        }
        if self.running.as_ref().is_some_and(|running| running.verdict.is_some()) {
            self.conclude().await;
            return Ok(true);
        }
        let any = self.gather()?;
        if let Some(running) = &mut self.running
            && !running.backlog.is_empty()
        {
            // Mostly there is room, and nothing to wait for.
            running.lease.append_now(&mut running.backlog);
        }
        Ok(any)
    }

    /// Reads frames up to the one that ends the running query, or all there are. True if there were any.
    fn gather(&mut self) -> Result<bool, ProtocolError> {
        let gathered = self.gather_frames();
        if let Some(running) = &mut self.running {
            running.settle();
        }
        gathered
    }

    fn gather_frames(&mut self) -> Result<bool, ProtocolError> {
        let traced = enabled!(Level::TRACE).then(|| self.span());
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let waiting = connection.waiting();
        let mut any = false;
        while let Some(line) = connection.next_line()? {
            any = true;
            let bytes = line.len();
            let frame = WorkerFrame::parse(line)?;
            if let Some(span) = &traced {
                span.in_scope(|| trace!(frame = frame.type_name(), bytes, "frame from the worker"));
            }
            if matches!(frame, WorkerFrame::Ready { .. }) {
                return Err(ProtocolError::SecondReady);
            }
            let Some(id) = frame.request_id() else { continue };
            match &mut self.running {
                Some(running) if running.request_id == id => {
                    if let WorkerFrame::Session { session_id, .. } = &frame {
                        self.host.session(&self.worker, session_id);
                    }
                    if matches!(frame, WorkerFrame::Message { .. })
                        && let Some(begun) = running.unanswered.take()
                    {
                        self.worker.metrics.first_message(begun.elapsed());
                    }
                    running.take(frame, waiting);
                }
                _ => self.worker.metrics.stale_frame(),
            }
            if self.running.as_ref().is_some_and(|running| running.verdict.is_some()) {
                break;
            }
        }
        Ok(any)
    }

    /// The worker ended its query by itself; it can take the next one.
    pub(super) async fn conclude(&mut self) {
        let Some(running) = self.running.take() else { return };
        let Some(verdict) = running.verdict else { return };
        let conclusion = Running::conclusion(running.letting_go, verdict);
        let worker = self.worker.clone();
        let span = running.attempt.end(conclusion.trouble().as_deref(), try_of(&running.lease, worker.id));
        let concluded = self.host.conclude(&worker, running.lease, running.backlog, conclusion);
        concluded.instrument(span).await;
        if self.worker.finish_task(Instant::now().into_std()) {
            self.host.ready(&worker).await;
        }
    }

    fn broke_protocol(&self, error: &ProtocolError) -> End {
        match self.worker.intent() {
            Some(intent) => End::stopped(intent.cause, Farewell::Sigterm),
            None => End::protocol(error),
        }
    }

    /// The worker closed its connection: the process follows, or it is of no use any more.
    async fn closed(&mut self) -> End {
        let intent = self.stop_taking_queries();
        let connection = self.connection.as_ref().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        if timeout(EXIT_AFTER_CLOSE, process.ended()).await.is_ok() {
            let unfinished = connection.finish().err();
            return self.end_by_exit(intent, unfinished.as_ref());
        }
        if let Some(intent) = intent {
            // The first cause wins: it was told to go, and went in its own way.
            return End::stopped(intent.cause, Farewell::Sigterm);
        }
        match connection.finish() {
            Err(error) => End::protocol(&error),
            Ok(()) => End::disconnected(),
        }
    }

    /// The process has ended; what it had sent still counts, and is all here already.
    async fn exited(&mut self) -> End {
        let intent = self.stop_taking_queries();
        for _ in 0..READS_AFTER_EXIT {
            if let Err(error) = self.gather_all().await {
                return self.end_by_exit(intent, Some(&error));
            }
            let connection = self.connection.as_mut().expect("a worker in service is connected");
            if !connection.read_now() {
                break;
            }
        }
        let unfinished = self.connection.as_ref().and_then(|connection| connection.finish().err());
        self.end_by_exit(intent, unfinished.as_ref())
    }

    /// Works through all lines that have arrived. Slow readers are not waited for here: what the log has no room for
    /// goes in with the end of the query.
    async fn gather_all(&mut self) -> Result<(), ProtocolError> {
        self.pick_up();
        while self.gather()? {
            if self.running.as_ref().is_some_and(|running| running.verdict.is_some()) {
                self.conclude().await;
            }
        }
        Ok(())
    }

    /// Nothing is dispatched to a worker that is known to be gone, whatever it still has to say. Gives the stop that was
    /// recorded by then: one that comes later is not the cause.
    pub(super) fn stop_taking_queries(&self) -> Option<Intent> {
        let intent = self.worker.intent();
        if intent.is_none() {
            let query = self.worker.query();
            let _ = self.worker.step_to(WorkerState::Failed, "process or connection gone", query.as_ref());
        }
        intent
    }

    /// An exit that follows from what the worker was told is not a crash.
    pub(super) fn end_by_exit(&self, intent: Option<Intent>, last_words: Option<&ProtocolError>) -> End {
        let told = self.running.as_ref().and_then(|running| running.letting_go.as_ref());
        match (intent, told) {
            (Some(intent), _) => End::stopped(intent.cause, Farewell::None),
            (None, Some(letting_go)) => End::stopped(self.cause_of(&letting_go.why), Farewell::None),
            (None, None) => End::crash(last_words),
        }
    }
}
