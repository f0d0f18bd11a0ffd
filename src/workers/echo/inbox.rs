//! The commands of the pool, read one by one, with or without a deadline.

use std::{
    io::{self, BufRead, BufReader},
    os::unix::net::UnixStream,
    time::Instant,
};

use memchr::memchr;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::wire::PoolCommand;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Inbox {
    stream: BufReader<UnixStream>,
    /// Bytes of commands that are not parsed yet.
    bytes: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the part of it that is known to have no newline.
    searched: usize,
}

/// The result of a read with a deadline.
#[derive(Debug)]
pub(super) enum Received {
    Command(PoolCommand),
    Nothing,
    /// The pool has closed the connection.
    End,
}

impl Inbox {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::with_capacity(READ_BYTES, stream), bytes: Vec::new(), start: 0, searched: 0 }
    }

    /// Waits for the next command; `None` if the pool has closed the connection.
    pub(super) fn next(&mut self) -> Option<PoolCommand> {
        loop {
            if let Some(command) = self.take() {
                return Some(command);
            }
            // A blocking read wakes up whenever the pool reads from the socket; a poll does not.
            self.is_readable(None);
            self.read()?;
        }
    }

    /// The next command, if it comes before the deadline.
    pub(super) fn next_until(&mut self, until: Instant) -> Received {
        loop {
            if let Some(command) = self.take() {
                return Received::Command(command);
            }
            if !self.is_readable(Some(until)) {
                return Received::Nothing;
            }
            if self.read().is_none() {
                return Received::End;
            }
        }
    }

    /// The next command in the buffer. Unknown commands, which a later version may have, are skipped.
    fn take(&mut self) -> Option<PoolCommand> {
        while let Some(end) = memchr(b'\n', &self.bytes[self.searched..]) {
            let end = self.searched + end;
            let command = PoolCommand::parse(&self.bytes[self.start..end]);
            (self.start, self.searched) = (end + 1, end + 1);
            if command.is_some() {
                return command;
            }
        }
        self.bytes.drain(..self.start);
        (self.start, self.searched) = (0, self.bytes.len());
        None
    }

    /// Reads more bytes; `None` at the end of the connection.
    fn read(&mut self) -> Option<()> {
        let read = loop {
            match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.unwrap_or_default(),
            }
        };
        let length = read.len();
        self.bytes.extend_from_slice(read);
        self.stream.consume(length);
        (length > 0).then_some(())
    }

    fn is_readable(&self, until: Option<Instant>) -> bool {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // The conversion cannot fail: payloads are bounded to `WAIT_MAX`.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(self.stream.get_ref(), PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                // If the poll fails, the read returns the error.
                ready => return ready.map_or(true, |ready| ready > 0),
            }
        }
    }
}
