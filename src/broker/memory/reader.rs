//! A cursor on the log of one query of the memory broker.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use crate::{
    broker::{EventReader, Progress, Unavailable},
    model::Stretch,
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

impl Drop for MemoryReader {
    fn drop(&mut self) {
        if let Some(at) = self.entry.detach_reader(self.number, Instant::now()) {
            self.store.look_again(&self.entry, at);
        }
    }
}

impl EventReader for MemoryReader {
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        take: &mut dyn FnMut(Stretch<'_>),
    ) -> Poll<Result<Progress, Unavailable>> {
        let Some(read) = self.entry.read(self.number, self.next, context.waker(), take) else { return Poll::Pending };
        if read.next > self.next {
            (self.next, self.told_end) = (read.next, read.over);
            return Poll::Ready(Ok(Progress::Events));
        }
        // Nothing more will come. Whoever asked for events beyond the end is still told how the query ended.
        if !std::mem::replace(&mut self.told_end, true)
            && let Some(last) = self.entry.final_event()
        {
            take(Stretch::One(&last));
            return Poll::Ready(Ok(Progress::Events));
        }
        Poll::Ready(Ok(Progress::End))
    }
}
