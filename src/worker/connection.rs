//! The reading half of the connection to a worker.

use std::io;

use bytes::BufMut;
use tokio::{io::AsyncReadExt, net::unix::OwnedReadHalf};

use crate::protocol::{LineBuffer, ProtocolError, READ_CHUNK_BYTES};

/// Reads, of up to 64 KiB each, before other tasks get their turn.
const READS_PER_TURN: u32 = 4;

#[derive(Debug)]
pub(super) struct WorkerConnection {
    stream: OwnedReadHalf,
    lines: LineBuffer,
    reads: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Data,
    /// The worker closed its end.
    End,
}

impl WorkerConnection {
    pub(super) fn new(stream: OwnedReadHalf, max_line_bytes: usize) -> Self {
        Self { stream, lines: LineBuffer::new(max_line_bytes), reads: 0 }
    }

    /// Waits for bytes. Cancel safe.
    pub(super) async fn read(&mut self) -> ReadOutcome {
        // For a worker that never stops writing this read is always ready: others must get their turn.
        self.yield_turn().await;
        // Unlike `try_read`, this remembers after a short read that there is no more, and saves a system call.
        match self.stream.read_buf(&mut self.lines.spare()).await {
            Ok(1..) => ReadOutcome::Data,
            // A reset counts as an end; the exit of the process tells more.
            Ok(0) | Err(_) => ReadOutcome::End,
        }
    }

    /// Reads without waiting, and without the runtime, which may not have noticed the bytes yet. False if there are none.
    pub(super) fn try_read(&mut self) -> bool {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        loop {
            match rustix::io::read(self.stream.as_ref(), &mut chunk) {
                Ok(0) => return false,
                Ok(read) => {
                    self.lines.spare().put_slice(&chunk[..read]);
                    return true;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Reads and discards until the worker closes its end.
    pub(super) async fn discard(&mut self) {
        let mut sink = vec![0; 4 * 1024];
        while self.stream.readable().await.is_ok() {
            self.yield_turn().await;
            match self.stream.try_read(&mut sink) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Lets other tasks run every few reads.
    async fn yield_turn(&mut self) {
        self.reads += 1;
        if self.reads.is_multiple_of(READS_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }

    /// The next complete line.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, ProtocolError> {
        self.lines.next_line()
    }

    /// Number of bytes that were read and not yet taken as lines.
    pub(super) fn unread(&self) -> usize {
        self.lines.waiting()
    }

    /// Frees the buffer that a flood of bytes took. To be called now and then.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Fails if the worker ended in the middle of a line.
    pub(super) fn finish(&self) -> Result<(), ProtocolError> {
        self.lines.finish()
    }
}
