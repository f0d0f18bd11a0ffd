//! A worker in service: here a line of its output becomes an entry of its query's event log.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use tracing::{Instrument, Span};

use crate::{
    broker::{Order, Output},
    model::{DeathCause, Failure, FailureReason, Rung},
    protocol::{JsonText, PoolFrame, ProtocolError, WorkerFrame},
    state::WorkerState,
};

use super::{
    Conclusion, StopMode,
    connection::Fill,
    driver::Driver,
    end::{End, Farewell},
    pool_worker::Task,
    stop::at,
};

/// How long a process that closed its connection has to exit before it counts as alive but disconnected.
pub(super) const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(500);
/// How long to read on after the process has ended: its last words are in the socket, unless a child of it holds on.
const READ_AFTER_EXIT: Duration = Duration::from_millis(200);
/// How often the worker's memory is looked at.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// The query a worker is running.
#[derive(Debug)]
pub(super) struct Running {
    pub lease: Box<dyn crate::broker::Lease>,
    request_id: String,
    timeout: Option<(Duration, Instant)>,
    pub span: Span,
    pub letting_go: Option<LettingGo>,
}

/// A running query that the worker was told to let go of.
#[derive(Debug)]
pub(super) struct LettingGo {
    pub why: Why,
    until: Instant,
}

#[derive(Debug)]
pub(super) enum Why {
    Cancel(Arc<str>),
    Timeout(Duration),
    Lost,
    Stop,
}

/// What ended the driver's wait.
enum Wake {
    Bytes(Fill),
    Exited,
    Attention,
    Order(Order),
    Deadline,
    Measure,
}

/// What a worker's lines amount to, up to the frame that ends its query.
#[derive(Default)]
struct Harvest {
    outputs: Vec<Output>,
    verdict: Option<Verdict>,
}

enum Verdict {
    Complete(JsonText),
    Error(Box<Failure>),
}

impl Driver {
    /// Runs queries until the worker ends or is to be stopped.
    pub(super) async fn serve(&mut self) -> End {
        self.host.ready(&self.worker.clone()).await;
        let mut measure = Instant::now() + MEASURE_EVERY;
        loop {
            if let Some(end) = self.heed_intent() {
                return end;
            }
            let wake = self.wake(measure).await;
            if matches!(wake, Wake::Measure) {
                measure = Instant::now() + MEASURE_EVERY;
            }
            if let Err(end) = self.handle(wake).await {
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

    /// What a requested stop asks for now.
    fn heed_intent(&mut self) -> Option<End> {
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

    async fn wake(&mut self, measure: Instant) -> Wake {
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        let outbox = self.worker.outbox().expect("a worker in service is connected");
        let deadline = self.running.as_ref().and_then(Running::deadline);
        let orders = self.running.as_mut().map(|running| running.lease.orders());
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
            fill = connection.fill() => Wake::Bytes(fill),
            () = flush => Wake::Attention,
            () = tokio::time::sleep_until(measure) => Wake::Measure,
        }
    }

    async fn handle(&mut self, wake: Wake) -> Result<(), End> {
        match wake {
            Wake::Attention if self.worker.is_deaf() => return Err(self.closed().await),
            Wake::Attention | Wake::Order(Order::Run) => {}
            Wake::Order(Order::Cancel { reason }) => self.let_go(Why::Cancel(reason.clone()), &reason),
            Wake::Order(Order::Lost) => self.let_go(Why::Lost, "the query runs elsewhere"),
            Wake::Deadline => return self.out_of_time(),
            Wake::Measure => self.measure(),
            Wake::Bytes(Fill::Data) => return self.harvest().await.map_err(|error| End::protocol(&error)),
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
        let request_id = running.request_id.clone();
        let reason = (!reason.is_empty()).then_some(reason);
        self.send(&PoolFrame::Cancel { request_id: &request_id, reason });
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
            Why::Cancel(_) | Why::Lost => DeathCause::Cancel,
            Why::Stop => self.worker.intent().map_or(DeathCause::Shutdown, |intent| intent.cause),
        }
    }

    fn measure(&self) {
        if let Some(process) = &self.process {
            self.worker.measured(process.peak_rss());
        }
    }

    /// Works through the lines that have arrived.
    async fn harvest(&mut self) -> Result<(), ProtocolError> {
        self.pick_up();
        loop {
            let harvest = self.gather()?;
            let Some(verdict) = harvest.verdict else {
                self.append(harvest.outputs).await;
                return Ok(());
            };
            self.conclude(harvest.outputs, verdict).await;
        }
    }

    /// Reads frames up to the one that ends the running query, or all there are.
    fn gather(&mut self) -> Result<Harvest, ProtocolError> {
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let mut harvest = Harvest::default();
        while let Some(line) = connection.next_line()? {
            let frame = WorkerFrame::parse(line)?;
            if let Some(id) = frame.request_id()
                && self.running.as_ref().is_none_or(|running| running.request_id != id)
            {
                self.worker.metrics.stale_frame();
                continue;
            }
            harvest.take(frame)?;
            if harvest.verdict.is_some() {
                break;
            }
        }
        Ok(harvest)
    }

    async fn append(&mut self, outputs: Vec<Output>) {
        let Some(running) = &mut self.running else { return };
        if !outputs.is_empty() && running.lease.append(outputs).await.is_err() {
            self.let_go(Why::Lost, "the query runs elsewhere");
        }
    }

    /// The worker ended its query by itself; it can take the next one.
    async fn conclude(&mut self, outputs: Vec<Output>, verdict: Verdict) {
        let Some(running) = self.running.take() else { return };
        let conclusion = match (running.letting_go.map(|letting_go| letting_go.why), verdict) {
            (Some(Why::Cancel(reason)), _) => Conclusion::Cancelled { reason, rung: Rung::CancelFrame },
            (Some(Why::Timeout(limit)), _) => {
                Conclusion::TimedOut { limit, rung: Rung::CancelFrame, certificate: None }
            }
            (Some(Why::Lost), _) => Conclusion::LeaseLost,
            (Some(Why::Stop) | None, Verdict::Complete(result)) => Conclusion::Complete { result },
            // Whatever error it gives, it gives because it was told to stop.
            (Some(Why::Stop), Verdict::Error(_)) => Conclusion::CutShort,
            (None, Verdict::Error(failure)) => Conclusion::Reported(failure),
        };
        self.host.conclude(running.lease, outputs, conclusion).instrument(running.span).await;
        if self.worker.finish_task() {
            self.host.ready(&self.worker.clone()).await;
            self.pick_up();
        }
    }

    /// The worker closed its connection: the process follows, or it is of no use any more.
    async fn closed(&mut self) -> End {
        self.stop_taking_queries();
        let connection = self.connection.as_ref().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        if timeout(EXIT_AFTER_CLOSE, process.ended()).await.is_ok() {
            let unfinished = connection.finish().err();
            return self.end_by_exit(unfinished.as_ref());
        }
        match connection.finish() {
            Err(error) => End::protocol(&error),
            Ok(()) => End::disconnected(),
        }
    }

    /// The process has ended; what it had sent still counts.
    async fn exited(&mut self) -> End {
        self.stop_taking_queries();
        let deadline = Instant::now() + READ_AFTER_EXIT;
        loop {
            let connection = self.connection.as_mut().expect("a worker in service is connected");
            match tokio::time::timeout_at(deadline, connection.fill()).await {
                Ok(Fill::Data) => {
                    if let Err(error) = self.harvest().await {
                        return self.end_by_exit(Some(&error));
                    }
                }
                Ok(Fill::End) | Err(_) => break,
            }
        }
        let unfinished = self.connection.as_ref().and_then(|connection| connection.finish().err());
        self.end_by_exit(unfinished.as_ref())
    }

    /// Nothing is dispatched to a worker that is known to be gone, whatever it still has to say.
    fn stop_taking_queries(&self) {
        if self.worker.intent().is_none() {
            let _ = self.worker.step_to(WorkerState::Failed, "process or connection gone");
        }
    }

    /// An exit that follows from what the worker was told is not a crash.
    fn end_by_exit(&self, last_words: Option<&ProtocolError>) -> End {
        let told = self.running.as_ref().and_then(|running| running.letting_go.as_ref());
        match (self.worker.intent(), told) {
            (Some(intent), _) => End::stopped(intent.cause, Farewell::None),
            (None, Some(letting_go)) => End::stopped(self.cause_of(&letting_go.why), Farewell::None),
            (None, None) => End::crash(last_words),
        }
    }
}

impl Running {
    fn new(task: Task) -> Self {
        let timeout = task.timeout.map(|(limit, at)| (limit, at.into()));
        Self { lease: task.lease, request_id: task.request_id, timeout, span: task.span, letting_go: None }
    }

    /// When patience with this query runs out.
    fn deadline(&self) -> Option<Instant> {
        match &self.letting_go {
            Some(letting_go) => Some(letting_go.until),
            None => self.timeout.map(|(_, at)| at),
        }
    }
}

impl Harvest {
    fn take(&mut self, frame: WorkerFrame<'_>) -> Result<(), ProtocolError> {
        match frame {
            WorkerFrame::Session { session_id, .. } => self.outputs.push(Output::Session(session_id.into())),
            WorkerFrame::Message { content, .. } => self.outputs.push(Output::Message(JsonText::from_checked(content))),
            WorkerFrame::Complete { result, .. } => {
                self.verdict = Some(Verdict::Complete(JsonText::from_checked(result)));
            }
            WorkerFrame::Error { error, code, retryable, details, .. } => {
                self.verdict = Some(Verdict::Error(Box::new(Failure {
                    reason: FailureReason::Reported,
                    message: error.into(),
                    code: code.map(Into::into),
                    retryable: retryable.unwrap_or(false),
                    details: details.map(JsonText::from_checked),
                    certificate: None,
                })));
            }
            WorkerFrame::Ready { .. } => return Err(ProtocolError::SecondReady),
            // Signs of life need no answer, and an early goodbye changes nothing: the exit will.
            WorkerFrame::Heartbeat { .. } | WorkerFrame::HealthOk { .. } | WorkerFrame::ShutdownAck => {}
        }
        Ok(())
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
