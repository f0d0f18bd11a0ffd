//! A cursor on the log of one query of the memory broker.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use crate::{
    broker::{EventReader, Unavailable},
    model::{Event, EventBody},
};

use super::{entry::Entry, store::Store};

#[derive(Debug)]
pub(super) struct MemoryReader {
    store: Arc<Store>,
    entry: Arc<Entry>,
    number: u64,
    next: u64,
    /// Whether the final event was given out.
    told_end: bool,
}

impl MemoryReader {
    pub(super) fn new(store: Arc<Store>, entry: Arc<Entry>, from: u64) -> Self {
        let number = entry.attach_reader(from);
        Self { store, entry, number, next: from, told_end: false }
    }
}

impl MemoryReader {
    /// Nothing more will come. Whoever asked for events beyond the end is still told how the query ended.
    fn end(&mut self) -> Vec<Event> {
        let told = std::mem::replace(&mut self.told_end, true);
        if told { Vec::new() } else { self.entry.final_event().into_iter().collect() }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        if let Some(at) = self.entry.detach_reader(self.number, Instant::now()) {
            self.store.look_again(&self.entry, at);
        }
    }
}

impl EventReader for MemoryReader {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Event>, Unavailable>> {
        let Some(events) = self.entry.read(self.number, self.next, context.waker()) else { return Poll::Pending };
        let Some(last) = events.last() else { return Poll::Ready(Ok(self.end())) };
        self.next = last.sequence + 1;
        self.told_end = matches!(last.body, EventBody::Ended(_));
        Poll::Ready(Ok(events))
    }
}
