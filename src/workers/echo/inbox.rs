//! What the pool sends, order by order: waited for without end, or until a moment.

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

use super::wire::Order;

/// What is read at once, at most.
const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Inbox {
    stream: BufReader<UnixStream>,
    /// What was read and not yet given out.
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where there is no end of it.
    searched: usize,
}

/// What came in until a moment.
#[derive(Debug)]
pub(super) enum Heard {
    Order(Order),
    Nothing,
    /// The pool is gone.
    End,
}

impl Inbox {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::with_capacity(CHUNK, stream), bytes: Vec::new(), start: 0, searched: 0 }
    }

    /// The next order, however long it takes; `None` if the pool is gone.
    pub(super) fn next(&mut self) -> Option<Order> {
        loop {
            if let Some(order) = self.take() {
                return Some(order);
            }
            // A read that waits is woken for nothing whenever the pool takes an answer out of the socket; a poll is not.
            self.is_readable(None);
            self.read()?;
        }
    }

    /// The next order, if it comes in time.
    pub(super) fn next_until(&mut self, until: Instant) -> Heard {
        loop {
            if let Some(order) = self.take() {
                return Heard::Order(order);
            }
            if !self.is_readable(Some(until)) {
                return Heard::Nothing;
            }
            if self.read().is_none() {
                return Heard::End;
            }
        }
    }

    /// An order that is here already. What this worker does not know may be known to a later one, and is passed over.
    fn take(&mut self) -> Option<Order> {
        while let Some(end) = memchr(b'\n', &self.bytes[self.searched..]) {
            let end = self.searched + end;
            let order = Order::parse(&self.bytes[self.start..end]);
            (self.start, self.searched) = (end + 1, end + 1);
            if order.is_some() {
                return order;
            }
        }
        self.bytes.drain(..self.start);
        (self.start, self.searched) = (0, self.bytes.len());
        None
    }

    /// Reads on; `None` if there is no more to come.
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
            // It cannot be too long: whoever waits bounds it.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(self.stream.get_ref(), PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                // Should it fail, reading tells why.
                ready => return ready.map_or(true, |ready| ready > 0),
            }
        }
    }
}
