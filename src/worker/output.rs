//! Reads a worker's stdout and stderr: lines go to the log, the end of stderr to the death certificate.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{net::unix::pipe, task::JoinHandle, time::timeout};
use tracing::{info, warn};

use crate::model::WorkerId;

use super::process::Pipes;

/// Part of stderr that is kept for the certificate.
const TAIL_MAX_BYTES: usize = 8 * 1024;
/// A longer line is logged in pieces.
const LOG_LINE_MAX_BYTES: usize = 4 * 1024;
/// Lines that a worker may log at once, and each second after that.
const LOG_BURST_LINES: f64 = 200.0;
const LOG_LINES_PER_SECOND: f64 = 50.0;
/// Time for the pipes to end after the worker. A process that left the worker's group may hold them open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The reader of one worker's pipes.
#[derive(Debug, Default)]
pub(super) struct OutputReader {
    tail: Arc<Mutex<VecDeque<u8>>>,
    task: Option<JoinHandle<()>>,
}

impl OutputReader {
    /// Reads both pipes in one task: most workers write to neither.
    pub(super) fn start(&mut self, worker: WorkerId, kind: &Arc<str>, pipes: Pipes) {
        let [stdout, stderr] = ["stdout", "stderr"].map(|stream| LineLogger::new(worker, kind, stream));
        let tail = self.tail.clone();
        self.task = Some(tokio::spawn(async move {
            let stdout = async {
                if let Some(pipe) = pipes.stdout {
                    read_all(pipe, stdout, None).await;
                }
            };
            tokio::join!(stdout, read_all(pipes.stderr, stderr, Some(tail)));
        }));
    }

    /// Waits for the pipes to end, but not long, and returns the end of stderr.
    pub(super) async fn finish(mut self) -> String {
        if let Some(task) = &mut self.task {
            let _ = timeout(DRAIN_TIMEOUT, task).await;
        }
        String::from_utf8_lossy(self.tail.lock().make_contiguous()).into_owned()
    }
}

impl Drop for OutputReader {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn read_all(pipe: pipe::Receiver, mut logger: LineLogger, tail: Option<Arc<Mutex<VecDeque<u8>>>>) {
    // Polling uses up the task's budget, so that a worker which never stops writing leaves room for others.
    while poll_fn(|context| pipe.poll_read_ready(context)).await.is_ok() {
        if read_some(&pipe, &mut logger, tail.as_deref()).is_break() {
            break;
        }
    }
    logger.finish();
}

/// Reads once. The buffer is on the stack, not kept: most workers write next to nothing.
fn read_some(pipe: &pipe::Receiver, logger: &mut LineLogger, tail: Option<&Mutex<VecDeque<u8>>>) -> ControlFlow<()> {
    let mut chunk = [0; LOG_LINE_MAX_BYTES];
    match pipe.try_read(&mut chunk) {
        Ok(n @ 1..) => {
            if let Some(tail) = tail {
                keep_tail(&mut tail.lock(), &chunk[..n]);
            }
            logger.add(&chunk[..n]);
            ControlFlow::Continue(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => ControlFlow::Continue(()),
        Ok(0) | Err(_) => ControlFlow::Break(()),
    }
}

fn keep_tail(tail: &mut VecDeque<u8>, bytes: &[u8]) {
    tail.extend(bytes);
    let excess = tail.len().saturating_sub(TAIL_MAX_BYTES);
    tail.drain(..excess);
}

/// Splits a stream into lines, and logs as many of them as the budget allows.
struct LineLogger {
    worker: WorkerId,
    kind: Arc<str>,
    stream: &'static str,
    line: Vec<u8>,
    budget: LogBudget,
    dropped: u64,
}

impl LineLogger {
    fn new(worker: WorkerId, kind: &Arc<str>, stream: &'static str) -> Self {
        let budget = LogBudget::new(Instant::now());
        Self { worker, kind: kind.clone(), stream, line: Vec::new(), budget, dropped: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LOG_LINE_MAX_BYTES {
                self.log_line();
            }
        }
    }

    fn finish(&mut self) {
        self.log_line();
        self.log_dropped();
    }

    fn log_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        let is_logged = !text.is_empty() && self.budget.take(Instant::now());
        if is_logged {
            info!(worker = self.worker.0, kind = %self.kind, stream = self.stream, "{text}");
        } else if !text.is_empty() {
            self.dropped += 1;
        }
        self.line.clear();
        if is_logged {
            self.log_dropped();
        }
    }

    fn log_dropped(&mut self) {
        if self.dropped > 0 {
            warn!(worker = self.worker.0, kind = %self.kind, lines = self.dropped, "worker writes too much; lines not logged");
            self.dropped = 0;
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct LogBudget {
    left: f64,
    since: Instant,
}

impl LogBudget {
    fn new(now: Instant) -> Self {
        Self { left: LOG_BURST_LINES, since: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_secs_f64() * LOG_LINES_PER_SECOND;
        self.left = (self.left + earned).min(LOG_BURST_LINES);
        self.since = now;
        let granted = self.left >= 1.0;
        if granted {
            self.left -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_only_the_end_of_stderr() {
        let mut tail = VecDeque::new();
        keep_tail(&mut tail, &[b'a'; TAIL_MAX_BYTES]);
        keep_tail(&mut tail, b"the end");
        assert_eq!(tail.len(), TAIL_MAX_BYTES);
        assert!(tail.iter().copied().collect::<Vec<_>>().ends_with(b"athe end"));
    }

    #[test]
    fn flood_of_lines_is_cut_to_its_budget() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        let at_once = (0..1_000).filter(|_| budget.take(start)).count();
        assert_eq!(at_once, 200);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1_000).filter(|_| budget.take(later)).count(), 50);
    }
}
