//! The built-in demonstration worker: it echoes, streams, sleeps, fails and crashes as its payload says.
//!
//! It uses threads and blocking calls instead of a runtime, so that it is ready within milliseconds. One thread reads
//! what the pool sends; the other one runs the query and looks at what came in whenever it would wait.

mod plan;
mod wire;

use std::{
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use crate::protocol::PROTOCOL_VERSION;
use plan::{Ending, Plan, Streaming};
use wire::{Frame, Order};

/// The pool sends one query at a time and little besides, so this is never full for long.
const INBOX: usize = 16;

/// Serves the pool that listens at `socket` until it is told to stop or the pool is gone.
///
/// # Errors
///
/// The connection could not be made, or broke while a frame was written.
pub fn run(socket: &Path) -> io::Result<ExitCode> {
    let stream = UnixStream::connect(socket)?;
    let reader = BufReader::new(stream.try_clone()?);
    let (sender, inbox) = sync_channel(INBOX);
    // Not joined: it may wait for the pool for ever, and it ends with the process.
    thread::Builder::new().name("reader".to_owned()).spawn(move || read_orders(reader, &sender))?;
    let echo = Echo { out: BufWriter::new(stream), inbox, started: Instant::now(), processed: 0, leaving: false };
    match echo.serve() {
        Stop::Told | Stop::PoolGone => Ok(ExitCode::SUCCESS),
        Stop::Crash(code) => Ok(ExitCode::from(code)),
        Stop::Broken(error) => Err(error),
    }
}

fn read_orders(mut reader: impl BufRead, inbox: &SyncSender<Order>) {
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // What this worker does not know may be known to a later one.
        let order = Order::parse(&line);
        if order.is_some_and(|order| inbox.send(order).is_err()) {
            return;
        }
        line.clear();
    }
}

/// Why the worker ends.
enum Stop {
    Told,
    PoolGone,
    /// On request, with this exit code.
    Crash(u8),
    Broken(io::Error),
}

/// How a query came to its end.
enum Done {
    Complete(Box<RawValue>),
    Failed { error: String, code: Option<String>, retryable: Option<bool> },
    Cancelled,
}

/// What a wait ended with.
#[derive(PartialEq)]
enum Waited {
    Through,
    Cancelled,
}

struct Echo<W: Write> {
    out: BufWriter<W>,
    inbox: Receiver<Order>,
    started: Instant,
    processed: u64,
    /// Told to stop once the running query is over.
    leaving: bool,
}

impl<W: Write> Echo<W> {
    fn serve(mut self) -> Stop {
        match self.attend() {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    fn attend(&mut self) -> Result<std::convert::Infallible, Stop> {
        let version = env!("CARGO_PKG_VERSION");
        self.send(&Frame::Ready { protocol: PROTOCOL_VERSION, name: "echo", version })?;
        loop {
            if self.leaving {
                self.send(&Frame::ShutdownAck)?;
                return Err(Stop::Told);
            }
            match self.inbox.recv().map_err(|_| Stop::PoolGone)? {
                Order::Query { request_id, payload } => self.answer(&request_id, &payload)?,
                Order::Shutdown { .. } => self.leaving = true,
                Order::HealthCheck => self.report_health()?,
                // The answer and the cancel crossed on their way.
                Order::Cancel { .. } => {}
            }
        }
    }

    fn answer(&mut self, request_id: &str, payload: &RawValue) -> Result<(), Stop> {
        let done = self.perform(request_id, payload)?;
        self.processed += 1;
        match &done {
            Done::Complete(result) => self.send(&Frame::Complete { request_id, result }),
            Done::Failed { error, code, retryable } => {
                self.send(&Frame::Error { request_id, error, code: code.as_deref(), retryable: *retryable })
            }
            Done::Cancelled => {
                let (error, code) = ("cancelled", Some("cancelled"));
                self.send(&Frame::Error { request_id, error, code, retryable: None })
            }
        }
    }

    fn perform(&mut self, request_id: &str, payload: &RawValue) -> Result<Done, Stop> {
        let plan = Plan::read(payload);
        if let Some(session_id) = &plan.session {
            self.send(&Frame::Session { request_id, session_id })?;
        }
        if let Some(streaming) = &plan.stream
            && self.stream(request_id, streaming)? == Waited::Cancelled
        {
            return Ok(Done::Cancelled);
        }
        if let Some(sleep) = plan.sleep
            && self.wait(request_id, sleep)? == Waited::Cancelled
        {
            return Ok(Done::Cancelled);
        }
        self.end(request_id, payload, plan)
    }

    fn stream(&mut self, request_id: &str, streaming: &Streaming) -> Result<Waited, Stop> {
        for n in 1..=streaming.count {
            let delay = if n == 1 { Duration::ZERO } else { streaming.delay };
            // Whoever waits for the next message should see this one; without a delay, a full buffer is sent at once.
            if !delay.is_zero() {
                self.out.flush().map_err(Stop::Broken)?;
            }
            if self.wait(request_id, delay)? == Waited::Cancelled {
                return Ok(Waited::Cancelled);
            }
            self.put(&Frame::Message { request_id, content: &plan::raw(&serde_json::json!({ "n": n })) })?;
        }
        self.out.flush().map_err(Stop::Broken)?;
        Ok(Waited::Through)
    }

    fn end(&mut self, request_id: &str, payload: &RawValue, plan: Plan) -> Result<Done, Stop> {
        match plan.ending {
            Ending::Echo => {
                self.send(&Frame::Message { request_id, content: payload })?;
                Ok(Done::Complete(plan::echo_of(payload)))
            }
            Ending::Complete(result) => Ok(Done::Complete(result)),
            Ending::Fail { error, code, retryable } => Ok(Done::Failed { error, code, retryable }),
            Ending::Crash(code) => {
                // Its last words: the server finds them in the death certificate.
                let _ = writeln!(io::stderr(), "echo worker: crashing with exit code {code}, as the payload asked for");
                Err(Stop::Crash(code))
            }
        }
    }

    /// Waits, and attends to what comes in meanwhile.
    fn wait(&mut self, running: &str, duration: Duration) -> Result<Waited, Stop> {
        let until = Instant::now() + duration;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Order::Cancel { request_id }) if request_id == running => return Ok(Waited::Cancelled),
                Ok(order) => self.attend_meanwhile(order)?,
                Err(RecvTimeoutError::Timeout) => return Ok(Waited::Through),
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::PoolGone),
            }
        }
    }

    fn attend_meanwhile(&mut self, order: Order) -> Result<(), Stop> {
        match order {
            Order::HealthCheck => self.report_health(),
            Order::Shutdown { graceful: true } => {
                self.leaving = true;
                Ok(())
            }
            Order::Shutdown { graceful: false } => {
                self.send(&Frame::ShutdownAck)?;
                Err(Stop::Told)
            }
            Order::Query { request_id, .. } => {
                let error = "the worker is busy with another query";
                self.send(&Frame::Error { request_id: &request_id, error, code: Some("busy"), retryable: Some(true) })
            }
            Order::Cancel { .. } => Ok(()),
        }
    }

    fn report_health(&mut self) -> Result<(), Stop> {
        let uptime = self.started.elapsed().as_secs_f64();
        self.send(&Frame::HealthOk { uptime, queries_processed: self.processed })
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Stop> {
        self.put(frame)?;
        self.out.flush().map_err(Stop::Broken)
    }

    fn put(&mut self, frame: &Frame<'_>) -> Result<(), Stop> {
        serde_json::to_writer(&mut self.out, frame).map_err(|error| Stop::Broken(error.into()))?;
        self.out.write_all(b"\n").map_err(Stop::Broken)
    }
}

#[cfg(test)]
mod tests;
