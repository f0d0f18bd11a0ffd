//! Reads a worker's stdout and stderr at all times: lines go to the log, the end of stderr to the certificate.

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

use super::{PoolWorker, process::Pipes};

/// How much of stderr a certificate quotes.
const TAIL_BYTES: usize = 8 * 1024;
/// A longer line is logged in pieces.
const LINE_BYTES: usize = 4 * 1024;
/// Lines a worker may log: this many at once, and this many each second after that.
const BURST: f64 = 200.0;
const PER_SECOND: f64 = 50.0;
/// A process that left the worker's group may hold a pipe open; its words are not waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    Stdout,
    Stderr,
}

/// The reader of one worker's pipes.
#[derive(Debug, Default)]
pub(super) struct Drains {
    tail: Arc<Mutex<VecDeque<u8>>>,
    task: Option<JoinHandle<()>>,
}

impl Drains {
    /// One task for both: most workers write to neither.
    pub(super) fn begin(&mut self, worker: &PoolWorker, pipes: Pipes) {
        let [stdout, stderr] = [Channel::Stdout, Channel::Stderr].map(|channel| Forward::new(worker, channel));
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

    /// What stderr ended with so far.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.lock().iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the pipes to end, but not for ever, and returns the end of stderr.
    pub(super) async fn finish(mut self) -> String {
        if let Some(task) = &mut self.task {
            let _ = timeout(LAST_WORDS, task).await;
        }
        self.tail()
    }
}

impl Drop for Drains {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn read_all(pipe: pipe::Receiver, mut forward: Forward, tail: Option<Arc<Mutex<VecDeque<u8>>>>) {
    // Polled and not awaited: that counts, so that a worker which never stops writing leaves room for others.
    while poll_fn(|context| pipe.poll_read_ready(context)).await.is_ok() {
        if read_some(&pipe, &mut forward, tail.as_deref()).is_break() {
            break;
        }
    }
    forward.end();
}

/// Reads what is there. Its buffer lives no longer than this: most workers write next to nothing.
fn read_some(pipe: &pipe::Receiver, forward: &mut Forward, tail: Option<&Mutex<VecDeque<u8>>>) -> ControlFlow<()> {
    let mut chunk = [0; LINE_BYTES];
    match pipe.try_read(&mut chunk) {
        Ok(n @ 1..) => {
            if let Some(tail) = tail {
                keep_tail(&mut tail.lock(), &chunk[..n]);
            }
            forward.take(&chunk[..n]);
            ControlFlow::Continue(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => ControlFlow::Continue(()),
        Ok(0) | Err(_) => ControlFlow::Break(()),
    }
}

fn keep_tail(tail: &mut VecDeque<u8>, bytes: &[u8]) {
    tail.extend(bytes);
    let excess = tail.len().saturating_sub(TAIL_BYTES);
    tail.drain(..excess);
}

/// Cuts a stream into lines and logs as many of them as the allowance lets through.
struct Forward {
    worker: u64,
    kind: Arc<str>,
    channel: Channel,
    line: Vec<u8>,
    allowance: Allowance,
    dropped: u64,
}

impl Forward {
    fn new(worker: &PoolWorker, channel: Channel) -> Self {
        let (worker, kind) = (worker.id.0, worker.kind.name.clone());
        Self { worker, kind, channel, line: Vec::new(), allowance: Allowance::new(Instant::now()), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_BYTES {
                self.log_line();
            }
        }
    }

    fn end(&mut self) {
        self.log_line();
        self.tell_dropped();
    }

    fn log_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        if text.is_empty() {
            self.line.clear();
            return;
        }
        if !self.allowance.take(Instant::now()) {
            self.dropped += 1;
            self.line.clear();
            return;
        }
        match self.channel {
            Channel::Stdout => info!(worker = self.worker, kind = %self.kind, stream = "stdout", "{text}"),
            Channel::Stderr => info!(worker = self.worker, kind = %self.kind, stream = "stderr", "{text}"),
        }
        self.line.clear();
        self.tell_dropped();
    }

    fn tell_dropped(&mut self) {
        if self.dropped > 0 {
            warn!(worker = self.worker, kind = %self.kind, lines = self.dropped, "worker writes too much; lines not logged");
            self.dropped = 0;
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct Allowance {
    left: f64,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_secs_f64() * PER_SECOND;
        self.left = (self.left + earned).min(BURST);
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
    fn keeps_only_the_end_of_stderr() {
        let mut tail = VecDeque::new();
        keep_tail(&mut tail, &[b'a'; TAIL_BYTES]);
        keep_tail(&mut tail, b"the end");
        assert_eq!(tail.len(), TAIL_BYTES);
        assert!(tail.iter().copied().collect::<Vec<_>>().ends_with(b"athe end"));
    }

    #[test]
    fn a_flood_is_cut_to_its_allowance() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let at_once = (0..1_000).filter(|_| allowance.take(start)).count();
        assert_eq!(at_once, 200);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1_000).filter(|_| allowance.take(later)).count(), 50);
    }
}
