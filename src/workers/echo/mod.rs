//! The demonstration worker: it echoes, streams, sleeps, fails and crashes as its payload says.
//!
//! It uses one thread and blocking calls instead of a runtime, so that it is ready within milliseconds and a query costs three
//! system calls. While it runs a query, it reads commands whenever it waits, and after each full buffer of output.

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
use inbox::{Inbox, Received};
use plan::{EchoEnding, EchoPlan, MessageStream};
pub use plan::{MESSAGE_SIZES, SizedAnswer, sized_answer};
use wire::{EchoFrame, PoolCommand};

/// Bytes that are written at once; a larger message is written alone.
const BUFFER_BYTES: usize = 64 * 1024;

/// Serves the pool that listens at `socket` until a shutdown command or the end of the connection.
///
/// # Errors
///
/// The connection could not be made, or broke while a frame was written.
pub fn run(socket: &Path) -> io::Result<ExitCode> {
    match Echo::new(UnixStream::connect(socket)?)?.serve() {
        EchoExit::Shutdown | EchoExit::PoolGone => Ok(ExitCode::SUCCESS),
        EchoExit::Crash(code) => Ok(ExitCode::from(code)),
        EchoExit::Broken(error) => Err(error),
    }
}

/// The cause of the worker's end.
enum EchoExit {
    Shutdown,
    PoolGone,
    /// Requested by the payload, with this exit code.
    Crash(u8),
    Broken(io::Error),
}

/// The result of a wait.
#[derive(PartialEq)]
enum WaitResult {
    Elapsed,
    Cancelled,
}

struct Echo {
    out: BufWriter<UnixStream>,
    inbox: Inbox,
    /// Bytes written since the last check for commands.
    unchecked_bytes: usize,
    started: Instant,
    processed: u64,
    /// True if the worker exits after the running query.
    stopping: bool,
}

impl Echo {
    fn new(stream: UnixStream) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, stream.try_clone()?);
        Ok(Self {
            out,
            inbox: Inbox::new(stream),
            unchecked_bytes: 0,
            started: Instant::now(),
            processed: 0,
            stopping: false,
        })
    }

    fn serve(mut self) -> EchoExit {
        match self.run() {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    fn run(&mut self) -> Result<std::convert::Infallible, EchoExit> {
        let version = env!("CARGO_PKG_VERSION");
        self.send(&EchoFrame::Ready { protocol: PROTOCOL_VERSION, name: "echo", version })?;
        loop {
            if self.stopping {
                self.send(&EchoFrame::ShutdownAck)?;
                return Err(EchoExit::Shutdown);
            }
            match self.inbox.next().ok_or(EchoExit::PoolGone)? {
                PoolCommand::Query { request_id, payload } => self.run_query(&request_id, &payload)?,
                PoolCommand::Shutdown { .. } => self.stopping = true,
                PoolCommand::HealthCheck => self.report_health()?,
                // The query ended before its cancel arrived.
                PoolCommand::Cancel { .. } => {}
            }
        }
    }

    fn run_query(&mut self, request_id: &str, payload: &RawValue) -> Result<(), EchoExit> {
        let plan = EchoPlan::parse(payload);
        let waited = self.run_steps(request_id, &plan)?;
        self.processed += 1;
        if waited == WaitResult::Cancelled {
            let (error, code) = ("cancelled", Some("cancelled"));
            return self.send(&EchoFrame::Error { request_id, error, code, retryable: None });
        }
        match &plan.ending {
            EchoEnding::Echo => {
                self.put(&EchoFrame::Message { request_id, content: payload })?;
                self.send(&EchoFrame::Complete { request_id, result: &plan::echo_of(payload) })
            }
            EchoEnding::Complete(result) => self.send(&EchoFrame::Complete { request_id, result }),
            EchoEnding::Fail { error, code, retryable } => {
                self.send(&EchoFrame::Error { request_id, error, code: code.as_deref(), retryable: *retryable })
            }
            EchoEnding::Crash(code) => {
                self.flush()?;
                // The server adds its standard error to the death certificate.
                let _ = writeln!(io::stderr(), "echo worker: crashing with exit code {code}, as the payload asked for");
                Err(EchoExit::Crash(*code))
            }
        }
    }

    /// Everything that a plan has before its ending.
    fn run_steps(&mut self, request_id: &str, plan: &EchoPlan) -> Result<WaitResult, EchoExit> {
        if let Some(session_id) = &plan.session {
            self.send(&EchoFrame::Session { request_id, session_id })?;
        }
        if let Some(streaming) = &plan.stream
            && self.stream(request_id, streaming)? == WaitResult::Cancelled
        {
            return Ok(WaitResult::Cancelled);
        }
        plan.sleep.map_or(Ok(WaitResult::Elapsed), |sleep| self.wait(request_id, sleep))
    }

    fn stream(&mut self, request_id: &str, streaming: &MessageStream) -> Result<WaitResult, EchoExit> {
        let prepared = streaming.content.as_ref().map(|content| EchoFrame::Message { request_id, content }.line());
        for n in 1..=streaming.count {
            if n > 1 && self.pause(request_id, streaming.delay)? == WaitResult::Cancelled {
                return Ok(WaitResult::Cancelled);
            }
            match &prepared {
                Some(line) => self.write(line)?,
                None => {
                    self.put(&EchoFrame::Message { request_id, content: &plan::raw(&serde_json::json!({ "n": n })) })?;
                }
            }
        }
        Ok(WaitResult::Elapsed)
    }

    /// Waits between two messages. Without a delay it is enough to check for commands after each full buffer.
    fn pause(&mut self, request_id: &str, delay: Duration) -> Result<WaitResult, EchoExit> {
        if delay.is_zero() && self.unchecked_bytes < BUFFER_BYTES {
            return Ok(WaitResult::Elapsed);
        }
        self.wait(request_id, delay)
    }

    /// Waits and handles commands meanwhile. Before a real wait it flushes, so that clients see all messages so far.
    fn wait(&mut self, running_id: &str, duration: Duration) -> Result<WaitResult, EchoExit> {
        self.unchecked_bytes = 0;
        if !duration.is_zero() {
            self.flush()?;
        }
        let until = Instant::now() + duration;
        loop {
            match self.inbox.next_until(until) {
                Received::Command(PoolCommand::Cancel { request_id }) if request_id == running_id => {
                    return Ok(WaitResult::Cancelled);
                }
                Received::Command(command) => self.handle_command(command)?,
                Received::Nothing => return Ok(WaitResult::Elapsed),
                Received::End => return Err(EchoExit::PoolGone),
            }
        }
    }

    fn handle_command(&mut self, command: PoolCommand) -> Result<(), EchoExit> {
        match command {
            PoolCommand::HealthCheck => self.report_health(),
            PoolCommand::Shutdown { graceful: true } => {
                self.stopping = true;
                Ok(())
            }
            PoolCommand::Shutdown { graceful: false } => {
                self.send(&EchoFrame::ShutdownAck)?;
                Err(EchoExit::Shutdown)
            }
            PoolCommand::Query { request_id, .. } => {
                let error = "the worker is busy with another query";
                self.send(&EchoFrame::Error {
                    request_id: &request_id,
                    error,
                    code: Some("busy"),
                    retryable: Some(true),
                })
            }
            PoolCommand::Cancel { .. } => Ok(()),
        }
    }

    fn report_health(&mut self) -> Result<(), EchoExit> {
        let uptime = self.started.elapsed().as_secs_f64();
        self.send(&EchoFrame::HealthOk { uptime, queries_processed: self.processed })
    }

    fn send(&mut self, frame: &EchoFrame<'_>) -> Result<(), EchoExit> {
        self.put(frame)?;
        self.flush()
    }

    fn put(&mut self, frame: &EchoFrame<'_>) -> Result<(), EchoExit> {
        self.write(&frame.line())
    }

    fn write(&mut self, line: &[u8]) -> Result<(), EchoExit> {
        self.unchecked_bytes += line.len();
        self.out.write_all(line).map_err(EchoExit::Broken)
    }

    fn flush(&mut self) -> Result<(), EchoExit> {
        self.out.flush().map_err(EchoExit::Broken)
    }
}

#[cfg(test)]
mod tests;
