//! A worker in service: here a line of its output becomes an entry of its query's event log.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{Level, enabled, trace, warn};

use crate::{
    broker::{AppendError, LeaseStatus},
    model::DeathCause,
    protocol::{PoolFrame, ProtocolError, WorkerFrame},
    state::WorkerState,
};

use super::{
    connection::ReadOutcome,
    driver::Driver,
    driver_event::{DriverEvent, DriverTimers},
    end_reason::{EXIT_AFTER_CLOSE_TIMEOUT, EndReason, StopMethod},
    liveness::{Liveness, LivenessFinding},
    pool_worker::{StopMode, StopRequest, TIMER_CHECK_INTERVAL},
    running::{CancelCause, CancelInProgress},
};

/// Reads of 64 KiB after the exit of the process. Its last output is in the socket's buffer, which is smaller; but a child
/// may hold the socket and go on writing.
const READS_AFTER_EXIT: usize = 64;
/// Interval between measurements of memory and processor time, with and without memory limits: memory can grow fast.
const MEASURE_INTERVAL: Duration = TIMER_CHECK_INTERVAL;
const MEASURE_INTERVAL_LIMITED: Duration = Duration::from_secs(1);

const RUNS_ELSEWHERE: &str = "the query runs elsewhere";

impl Driver {
    /// Runs queries until the worker ends or is to be stopped.
    pub(super) async fn serve(&mut self) -> EndReason {
        let heartbeats = self.worker.lock.lock().ready_info.heartbeats;
        let liveness = Liveness::new(self.worker.kind.clone(), heartbeats, Instant::now().into_std());
        let mut timers = DriverTimers::new(Instant::now() + self.measure_interval(), liveness);
        self.host.ready(&self.worker).await;
        loop {
            if let Some(end) = self.check_stop_request() {
                return end;
            }
            match self.process_input().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return self.on_protocol_error(&error),
            }
            let event = self.next_event(&mut timers).await;
            if let Err(end) = self.on_event(event, &mut timers).await {
                return end;
            }
        }
    }

    /// Acts on a requested stop: cancels the running query, or ends the service.
    pub(super) fn check_stop_request(&mut self) -> Option<EndReason> {
        // Both at once: after a recorded stop no query is started, so none can be overlooked.
        let (request, started) = self.worker.take_started();
        if started.is_some() {
            self.running = started;
        }
        let request = request?;
        if request.mode == StopMode::Kill {
            return Some(EndReason::stopped(request.cause, StopMethod::Sigkill));
        }
        if self.running.is_none() {
            return Some(EndReason::stopped(request.cause, StopMethod::ShutdownFrame));
        }
        if request.mode >= StopMode::Now {
            self.cancel_query(CancelCause::Stop, "the server is stopping");
        }
        None
    }

    async fn on_event(&mut self, event: DriverEvent, timers: &mut DriverTimers) -> Result<(), EndReason> {
        match event {
            DriverEvent::Notified if self.worker.has_write_failed() => return Err(self.on_close().await),
            DriverEvent::Notified => self.check_lease(),
            // While the log was waited for, the worker was not read from: its silence begins anew.
            DriverEvent::Appended(Ok(())) => timers.liveness.record_output(Instant::now().into_std()),
            DriverEvent::Appended(Err(AppendError::Overflow)) => {
                self.drop_output(CancelCause::Overflow, "nobody keeps up with it");
            }
            DriverEvent::Appended(Err(AppendError::LeaseLost(_))) => {
                self.drop_output(CancelCause::LeaseLost, RUNS_ELSEWHERE);
            }
            DriverEvent::Timer => return self.check_timers(timers, Instant::now()),
            DriverEvent::Read(ReadOutcome::Data) => {
                let now = Instant::now().into_std();
                timers.liveness.record_output(now);
                self.worker.lock.lock().last_heard = now;
            }
            DriverEvent::Read(ReadOutcome::End) => return Err(self.on_close().await),
            DriverEvent::Exited => return Err(self.on_exit().await),
        }
        Ok(())
    }

    /// Acts on the status of the running query's lease, which may have changed before the query was taken over.
    fn check_lease(&mut self) {
        self.take_started();
        match self.running.as_ref().map(|running| running.lease.status()) {
            None | Some(LeaseStatus::Active) => {}
            Some(LeaseStatus::CancelRequested { reason }) => {
                self.cancel_query(CancelCause::Cancel(reason.clone()), &reason);
            }
            Some(LeaseStatus::Lost) => self.drop_output(CancelCause::LeaseLost, RUNS_ELSEWHERE),
        }
    }

    fn check_timers(&mut self, timers: &mut DriverTimers, now: Instant) -> Result<(), EndReason> {
        self.take_started();
        if self.query_deadline().is_some_and(|at| at <= now) {
            self.on_query_deadline()?;
        }
        if timers.next_measurement <= now {
            timers.next_measurement = now + self.measure_interval();
            self.measure();
            self.check_memory()?;
            self.connection.as_mut().expect("a worker in service is connected").shrink();
        }
        if self.next_liveness_check(timers).is_some_and(|at| at <= now) {
            self.check_liveness(&mut timers.liveness)?;
        }
        Ok(())
    }

    /// Tells the worker to give up its query, and gives it time to do so.
    fn cancel_query(&mut self, cause: CancelCause, reason: &str) {
        let grace = self.worker.kind.cancel_grace;
        let Some(running) = &mut self.running else { return };
        if running.cancel.is_some() {
            return;
        }
        running.cancel = Some(CancelInProgress { cause, until: Instant::now() + grace });
        // The worker's answer comes after the output that slow readers hold up.
        running.lease.disable_backpressure();
        let request_id = running.request_id.clone();
        let reason = (!reason.is_empty()).then_some(reason);
        self.send(&PoolFrame::Cancel { request_id: &request_id, reason });
    }

    /// Cancels a query whose output is of no use any more.
    fn drop_output(&mut self, cause: CancelCause, reason: &str) {
        if let Some(running) = &mut self.running {
            running.backlog.clear();
        }
        self.cancel_query(cause, reason);
    }

    fn on_query_deadline(&mut self) -> Result<(), EndReason> {
        let Some(running) = &self.running else { return Ok(()) };
        match (&running.cancel, running.timeout) {
            (Some(cancel), _) => Err(EndReason::cancel_ignored(self.death_cause(&cancel.cause))),
            (None, Some((limit, _))) => {
                self.cancel_query(CancelCause::Timeout(limit), "the query timed out");
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn death_cause(&self, cause: &CancelCause) -> DeathCause {
        match cause {
            CancelCause::Timeout(_) => DeathCause::Timeout,
            CancelCause::Cancel(_) | CancelCause::LeaseLost | CancelCause::Overflow => DeathCause::Cancel,
            CancelCause::Stop => self.worker.stop_request().map_or(DeathCause::Shutdown, |request| request.cause),
        }
    }

    fn check_liveness(&mut self, liveness: &mut Liveness) -> Result<(), EndReason> {
        match liveness.check(Instant::now().into_std(), self.occupation()) {
            LivenessFinding::Alive => {}
            LivenessFinding::Ping => self.send(&PoolFrame::HealthCheck),
            LivenessFinding::Silent(silence) => {
                let kind = &self.worker.kind.name;
                let worker = self.worker.id.0;
                self.span().in_scope(|| {
                    warn!(worker, %kind, ?silence, "worker has not given a sign of life for a while");
                });
            }
            LivenessFinding::Dead(silence) => return Err(EndReason::silent(silence)),
        }
        Ok(())
    }

    fn measure_interval(&self) -> Duration {
        let kind = &self.worker.kind;
        let is_limited = kind.memory_limit.or(kind.memory_soft).is_some();
        if is_limited { MEASURE_INTERVAL_LIMITED } else { MEASURE_INTERVAL }
    }

    fn check_memory(&self) -> Result<(), EndReason> {
        let used = self.worker.lock.lock().usage.latest().map_or(0, |sample| sample.rss);
        match self.worker.kind.memory_limit {
            Some(limit) if used > limit => Err(EndReason::too_large(used, limit)),
            _ => Ok(()),
        }
    }

    /// Handles the frames that have arrived, as far as that needs no waiting. True if there may be more to do.
    async fn process_input(&mut self) -> Result<bool, ProtocolError> {
        if self.is_stalled() {
            return Ok(false);
        }
        if self.conclude_if_final().await {
            return Ok(true);
        }
        let any = self.read_frames()?;
        if let Some(running) = &mut self.running
            && !running.backlog.is_empty()
        {
            // Usually there is room, and no need to wait.
            running.lease.append_now(&mut running.backlog);
        }
        Ok(any)
    }

    /// Takes frames up to the one that ends the running query, or all there are. True if there were any.
    fn read_frames(&mut self) -> Result<bool, ProtocolError> {
        let result = self.parse_frames();
        if let Some(running) = &mut self.running {
            running.flush_batch();
        }
        result
    }

    fn parse_frames(&mut self) -> Result<bool, ProtocolError> {
        let traced = enabled!(Level::TRACE).then(|| self.span());
        let connection = self.connection.as_mut().expect("a worker in service is connected");
        let unread = connection.unread();
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
            let Some(running) = self.running.as_mut().filter(|running| running.request_id == id) else {
                self.worker.metrics.record_stale_frame();
                continue;
            };
            if let WorkerFrame::Session { session_id, .. } = &frame {
                self.host.session(&self.worker, session_id);
            }
            if matches!(frame, WorkerFrame::Message { .. })
                && let Some(since) = running.awaiting_message_since.take()
            {
                self.worker.metrics.record_first_message(since.elapsed());
            }
            running.on_frame(frame, unread);
            if running.final_frame.is_some() {
                break;
            }
        }
        Ok(any)
    }

    /// If the worker has ended its query, hands that to the host and offers the worker for the next one.
    pub(super) async fn conclude_if_final(&mut self) -> bool {
        let Some(conclusion) = self.running.as_mut().and_then(|running| running.conclusion(None)) else { return false };
        let running = self.running.take().expect("it was concluded");
        self.conclude(running, conclusion).await;
        if self.worker.finish_query(Instant::now().into_std()) {
            self.host.ready(&self.worker).await;
        }
        true
    }

    fn on_protocol_error(&self, error: &ProtocolError) -> EndReason {
        match self.worker.stop_request() {
            Some(request) => EndReason::stopped(request.cause, StopMethod::Sigterm),
            None => EndReason::protocol(error),
        }
    }

    /// The worker closed its connection: its process exits soon, or it is of no use any more.
    ///
    /// Exit and close usually come together, in either order. The exit is awaited for a moment, because its status tells
    /// more than the close.
    async fn on_close(&mut self) -> EndReason {
        let request = self.stop_taking_queries();
        let connection = self.connection.as_ref().expect("a worker in service is connected");
        let process = self.process.as_ref().expect("a worker in service has a process");
        let unfinished = connection.finish();
        if timeout(EXIT_AFTER_CLOSE_TIMEOUT, process.wait_for_exit()).await.is_ok() {
            return self.end_by_exit(request, unfinished.err().as_ref());
        }
        match (request, unfinished) {
            // The first cause wins: a stop was requested.
            (Some(request), _) => EndReason::stopped(request.cause, StopMethod::Sigterm),
            (None, Err(error)) => EndReason::protocol(&error),
            (None, Ok(())) => EndReason::disconnected(),
        }
    }

    /// The process has exited. Its last output still counts, and is all in the socket by now.
    async fn on_exit(&mut self) -> EndReason {
        let request = self.stop_taking_queries();
        for _ in 0..READS_AFTER_EXIT {
            if let Err(error) = self.process_all_input().await {
                return self.end_by_exit(request, Some(&error));
            }
            let connection = self.connection.as_mut().expect("a worker in service is connected");
            if !connection.try_read() {
                break;
            }
        }
        let unfinished = self.connection.as_ref().and_then(|connection| connection.finish().err());
        self.end_by_exit(request, unfinished.as_ref())
    }

    /// Handles all lines that have arrived, without waiting for slow readers: output that the log has no room for goes in
    /// with the end of the query.
    async fn process_all_input(&mut self) -> Result<(), ProtocolError> {
        self.take_started();
        while self.read_frames()? {
            self.conclude_if_final().await;
        }
        Ok(())
    }

    /// Keeps queries from a worker that is gone. Returns the stop that was requested by then: a later one is not the cause.
    pub(super) fn stop_taking_queries(&self) -> Option<StopRequest> {
        let request = self.worker.stop_request();
        if request.is_none() {
            let query = self.worker.lock.lock().query.clone();
            self.worker.step_to(WorkerState::Failed, "process or connection gone", query.as_ref());
        }
        request
    }

    /// An exit after a stop or a cancel is not a crash.
    pub(super) fn end_by_exit(&self, request: Option<StopRequest>, last_error: Option<&ProtocolError>) -> EndReason {
        let cancel = self.running.as_ref().and_then(|running| running.cancel.as_ref());
        match (request, cancel) {
            (Some(request), _) => EndReason::stopped(request.cause, StopMethod::None),
            (None, Some(cancel)) => EndReason::stopped(self.death_cause(&cancel.cause), StopMethod::None),
            (None, None) => EndReason::crash(last_error),
        }
    }
}
