//! A cursor on the log of one query of the memory broker.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use tokio_stream::Stream;

use crate::broker::{EventSlice, Unavailable};

use super::{MemoryBroker, entry::Entry};

#[derive(Debug)]
pub struct MemoryReader {
    broker: Arc<MemoryBroker>,
    entry: Arc<Entry>,
    number: u64,
    next: u64,
    /// True once the final event was handed out.
    is_done: bool,
}

impl MemoryReader {
    pub(super) fn new(broker: Arc<MemoryBroker>, entry: Arc<Entry>, from: u64) -> Self {
        let number = entry.attach_reader(from);
        Self { broker, entry, number, next: from, is_done: false }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        if let Some(at) = self.entry.detach_reader(self.number, Instant::now()) {
            self.broker.deadlines.add(&self.entry, at);
        }
    }
}

impl Stream for MemoryReader {
    type Item = Result<Vec<EventSlice>, Unavailable>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let Some(read) = self.entry.read(self.number, self.next, context.waker()) else { return Poll::Pending };
        self.is_done = read.over;
        if let Some(last) = read.batch.last() {
            self.next = last.end();
            return Poll::Ready(Some(Ok(read.batch)));
        }
        // A reader that asked for events beyond the end still learns how the query ended.
        Poll::Ready(self.entry.final_event().map(|last| Ok(vec![EventSlice::One(last)])))
    }
}
