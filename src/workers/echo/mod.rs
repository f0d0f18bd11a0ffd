//! The built-in demonstration worker: it echoes, streams, sleeps, fails and crashes as its payload says.
//!
//! It uses one thread and blocking calls instead of a runtime, so that it is ready within milliseconds and a query costs it three
//! system calls. While it runs a query it looks at what came in whenever it would wait, and between full buffers.

mod inbox;
mod plan;
mod wire;

use std::{
    io::{self, BufWriter, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use crate::protocol::PROTOCOL_VERSION;
use inbox::{Heard, Inbox};
pub use plan::{Answer, SIZES, answer};
use plan::{Ending, Plan, Streaming};
use wire::{Frame, Order};

/// What is written at once, at most; a message that is larger goes alone.
const BUFFER: usize = 64 * 1024;

/// Serves the pool that listens at `socket` until it is told to stop or the pool is gone.
///
/// # Errors
///
/// The connection could not be made, or broke while a frame was written.
pub fn run(socket: &Path) -> io::Result<ExitCode> {
    match Echo::new(UnixStream::connect(socket)?)?.serve() {
        Stop::Told | Stop::PoolGone => Ok(ExitCode::SUCCESS),
        Stop::Crash(code) => Ok(ExitCode::from(code)),
        Stop::Broken(error) => Err(error),
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

struct Echo {
    out: BufWriter<UnixStream>,
    inbox: Inbox,
    /// Bytes written since it last looked at what came in.
    unlooked: usize,
    started: Instant,
    processed: u64,
    /// Told to stop once the running query is over.
    leaving: bool,
}

impl Echo {
    fn new(stream: UnixStream) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER, stream.try_clone()?);
        Ok(Self { out, inbox: Inbox::new(stream), unlooked: 0, started: Instant::now(), processed: 0, leaving: false })
    }

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
            match self.inbox.next().ok_or(Stop::PoolGone)? {
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
        let prepared = streaming.content.as_ref().map(|content| Frame::Message { request_id, content }.line());
        for n in 1..=streaming.count {
            if n > 1 && self.pause(request_id, streaming.delay)? == Waited::Cancelled {
                return Ok(Waited::Cancelled);
            }
            match &prepared {
                Some(line) => self.write(line)?,
                None => {
                    self.put(&Frame::Message { request_id, content: &plan::raw(&serde_json::json!({ "n": n })) })?;
                }
            }
        }
        Ok(Waited::Through)
    }

    /// Between two messages. Without a delay it is enough to look at what came in once for each full buffer.
    fn pause(&mut self, request_id: &str, delay: Duration) -> Result<Waited, Stop> {
        if delay.is_zero() && self.unlooked < BUFFER {
            return Ok(Waited::Through);
        }
        self.wait(request_id, delay)
    }

    fn end(&mut self, request_id: &str, payload: &RawValue, plan: Plan) -> Result<Done, Stop> {
        match plan.ending {
            Ending::Echo => {
                self.put(&Frame::Message { request_id, content: payload })?;
                Ok(Done::Complete(plan::echo_of(payload)))
            }
            Ending::Complete(result) => Ok(Done::Complete(result)),
            Ending::Fail { error, code, retryable } => Ok(Done::Failed { error, code, retryable }),
            Ending::Crash(code) => {
                self.flush()?;
                // Its last words: the server finds them in the death certificate.
                let _ = writeln!(io::stderr(), "echo worker: crashing with exit code {code}, as the payload asked for");
                Err(Stop::Crash(code))
            }
        }
    }

    /// Waits, and attends to what comes in meanwhile. Whoever waits with it sees all that was said before.
    fn wait(&mut self, running: &str, duration: Duration) -> Result<Waited, Stop> {
        self.unlooked = 0;
        if !duration.is_zero() {
            self.flush()?;
        }
        let until = Instant::now() + duration;
        loop {
            match self.inbox.next_until(until) {
                Heard::Order(Order::Cancel { request_id }) if request_id == running => return Ok(Waited::Cancelled),
                Heard::Order(order) => self.attend_meanwhile(order)?,
                Heard::Nothing => return Ok(Waited::Through),
                Heard::End => return Err(Stop::PoolGone),
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
        self.flush()
    }

    fn put(&mut self, frame: &Frame<'_>) -> Result<(), Stop> {
        self.write(&frame.line())
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Stop> {
        self.unlooked += line.len();
        self.out.write_all(line).map_err(Stop::Broken)
    }

    fn flush(&mut self) -> Result<(), Stop> {
        self.out.flush().map_err(Stop::Broken)
    }
}

#[cfg(test)]
mod tests;
