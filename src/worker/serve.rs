//! A worker in service: here a line of its output becomes an entry of its query's event log.

use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tracing::{Instrument, Level, enabled, trace, warn};

use crate::{
    broker::{AppendError, Order},
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
    running::{LettingGo, Running, Why, append, try_of},
    stop::at,
    vitals::{Finding, Occupation, Vitals},
};

/// How long a process that closed its connection has to exit before it counts as alive but disconnected.
pub(super) const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(500);
/// How many reads of 64 KiB follow the end of the process. Its last words are in the socket's buffer, which is smaller; but
/// a child of it may hold the socket and go on writing.
const READS_AFTER_EXIT: usize = 64;
/// How often the worker's memory and processor time are looked at.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
const MEASURE_LIMITED_EVERY: Duration = Duration::from_secs(1);

/// What ended the driver's wait.
enum Wake {
    Bytes(Fill),
    Appended(Result<(), AppendError>),
    Exited,
    Attention,
    Order(Order),
    Deadline,
    Vitals,
    Measure,
}

/// The clocks that run while a worker is in service.
struct Clocks {
    measure: Instant,
    vitals: Vitals,
}

impl Driver {
    /// Runs queries until the worker ends or is to be stopped.
    pub(super) async fn serve(&mut self) -> End {
        let vitals = Vitals::new(self.expectations(), Instant::now().into_std());
        let mut clocks = Clocks { measure: Instant::now() + self.measure_every(), vitals };
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
            let wake = self.wake(&clocks).await;
            if let Err(end) = self.handle(wake, &mut clocks).await {
                return end;
            }
        }
    }

    /// Takes over a query that was started since.
    pub(super) fn pick_up(&mut self) {
        if let Some(task) = self.worker.take_over() {
            self.running = Some(Running::new(task));
        }
    }

    fn occupation(&self) -> Occupation {
        if self.running.is_some() { Occupation::Busy } else { Occupation::Idle }
    }

    /// What a requested stop asks for now.
    pub(super) fn heed_intent(&mut self) -> Option<End> {
        let intent = self.worker.intent();
        // In this order: once a stop is recorded no query is started any more, so none can be overlooked.
        self.pick_up();
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

    async fn wake(&mut self, clocks: &Clocks) -> Wake {
        let occupation = self.occupation();
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        let outbox = self.worker.outbox().expect("a worker in service is connected");
        let deadline = self.running.as_ref().and_then(Running::deadline);
        let stalled = self.running.as_ref().is_some_and(|running| !running.backlog.is_empty());
        let (orders, appending) = match &mut self.running {
            Some(running) => (Some(&mut running.orders), Some((&mut running.lease, &mut running.backlog))),
            None => (None, None),
        };
        let appended = async {
            match appending {
                Some((lease, backlog)) => append(&mut **lease, backlog).await,
                None => std::future::pending().await,
            }
        };
        let flush = async {
            // A broken connection is for the reader to find.
            let _ = outbox.flush().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased; // A flood of output comes last, so that it cannot keep a cancel from being seen.
            () = self.worker.attention.notified() => Wake::Attention,
            order = next_order(orders) => Wake::Order(order),
            () = at(deadline) => Wake::Deadline,
            () = process.ended() => Wake::Exited,
            appended = appended => Wake::Appended(appended),
            fill = connection.fill(), if !stalled => Wake::Bytes(fill),
            () = flush => Wake::Attention,
            () = at(clocks.vitals.next_check(occupation).map(Into::into)), if !stalled => Wake::Vitals,
            () = tokio::time::sleep_until(clocks.measure) => Wake::Measure,
        }
    }

    async fn handle(&mut self, wake: Wake, clocks: &mut Clocks) -> Result<(), End> {
        match wake {
            Wake::Attention if self.worker.is_deaf() => return Err(self.closed().await),
            Wake::Attention | Wake::Order(Order::Run) => {}
            // While its readers were waited for, nobody listened to the worker: its silence begins anew.
            Wake::Appended(Ok(())) => clocks.vitals.heard(Instant::now().into_std()),
            Wake::Appended(Err(AppendError::Overflow)) => self.drop_output(Why::Overflow, "nobody keeps up with it"),
            Wake::Order(Order::Cancel { reason }) => self.let_go(Why::Cancel(reason.clone()), &reason),
            Wake::Order(Order::Lost) | Wake::Appended(Err(AppendError::LeaseLost(_))) => {
                self.drop_output(Why::Lost, "the query runs elsewhere");
            }
            Wake::Deadline => return self.out_of_time(),
            Wake::Measure => {
                clocks.measure = Instant::now() + self.measure_every();
                self.measure();
                return self.check_memory();
            }
            Wake::Vitals => return self.check_vitals(&mut clocks.vitals),
            Wake::Bytes(Fill::Data) => {
                clocks.vitals.heard(Instant::now().into_std());
                self.worker.heard();
            }
            Wake::Bytes(Fill::End) => return Err(self.closed().await),
            Wake::Exited => return Err(self.exited().await),
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
        running.lease.hurry();
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
        if self.running.as_ref().is_some_and(|running| !running.backlog.is_empty()) {
            return Ok(false);
        }
        if self.running.as_ref().is_some_and(|running| running.verdict.is_some()) {
            self.conclude().await;
            return Ok(true);
        }
        self.gather()
    }

    /// Reads frames up to the one that ends the running query, or all there are. True if there were any.
    fn gather(&mut self) -> Result<bool, ProtocolError> {
        self.pick_up();
        let traced = enabled!(Level::TRACE).then(|| self.span());
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        // What they say takes one allocation for all lines that have come together.
        let mut block = BytesMut::with_capacity(connection.waiting());
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
                    running.take(frame, &mut block);
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
        let span = running.attempt.end(conclusion.trouble().as_deref(), try_of(&*running.lease, worker.id));
        self.host.conclude(&worker, running.lease, running.backlog, conclusion).instrument(span).await;
        if self.worker.finish_task() {
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

async fn next_order(orders: Option<&mut watch::Receiver<Order>>) -> Order {
    if let Some(orders) = orders
        && orders.changed().await.is_ok()
    {
        return orders.borrow_and_update().clone();
    }
    std::future::pending().await
}
