//! The bytes between the pool and one worker.

use std::io;

use bytes::BufMut;
use tokio::{io::AsyncReadExt, net::unix::OwnedReadHalf};

use crate::protocol::{LineBuffer, ProtocolError, READ_CHUNK};

#[derive(Debug)]
pub(super) struct Connection {
    stream: OwnedReadHalf,
    lines: LineBuffer,
    reads: u32,
}

/// How many reads, of up to 64 KiB each, a worker gets before others have their turn.
const READS_AT_A_TIME: u32 = 4;

/// What came of waiting for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Data,
    /// The worker closed its end.
    End,
}

impl Connection {
    pub(super) fn new(stream: OwnedReadHalf, max_line_bytes: usize) -> Self {
        Self { stream, lines: LineBuffer::new(max_line_bytes), reads: 0 }
    }

    /// Waits for bytes. May be dropped at any time without losing any.
    pub(super) async fn fill(&mut self) -> Fill {
        // A worker that never stops writing must leave room for others: this read is never "not ready".
        self.pause().await;
        // Not `try_read`: this one knows after a short read that there is no more, and does not ask the kernel again.
        match self.stream.read_buf(&mut self.lines.spare()).await {
            Ok(1..) => Fill::Data,
            // A reset is an end too: what it means depends on what the process does next.
            Ok(0) | Err(_) => Fill::End,
        }
    }

    /// Reads what is there, without waiting and without asking the runtime, which may not have noticed it yet. False if
    /// there is nothing more.
    pub(super) fn read_now(&mut self) -> bool {
        let mut chunk = vec![0; READ_CHUNK];
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

    /// Reads on without looking, until the worker closes its end.
    pub(super) async fn discard(&mut self) {
        let mut sink = vec![0; 4 * 1024];
        while self.stream.readable().await.is_ok() {
            self.pause().await;
            match self.stream.try_read(&mut sink) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Lets other tasks run every few reads.
    async fn pause(&mut self) {
        self.reads += 1;
        if self.reads.is_multiple_of(READS_AT_A_TIME) {
            tokio::task::yield_now().await;
        }
    }

    /// The next whole line that has arrived.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, ProtocolError> {
        self.lines.next_line()
    }

    /// How many bytes wait to be taken, whole lines and the beginning of one.
    pub(super) fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Gives back the room that a flood of bytes took. To be called now and then.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Whether the worker ended in the middle of a line.
    pub(super) fn finish(&self) -> Result<(), ProtocolError> {
        self.lines.finish()
    }
}
