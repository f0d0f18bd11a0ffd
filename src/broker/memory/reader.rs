//! A cursor on the log of one query of the memory broker.

use std::{pin::pin, sync::Arc, time::Instant};

use async_trait::async_trait;

use crate::{broker::EventReader, model::Event};

use super::{Store, entry::Entry};

#[derive(Debug)]
pub(super) struct MemoryReader {
    store: Arc<Store>,
    entry: Arc<Entry>,
    next: u64,
}

impl MemoryReader {
    pub(super) fn new(store: Arc<Store>, entry: Arc<Entry>, from: u64) -> Self {
        entry.attach_reader();
        Self { store, entry, next: from }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        if let Some(at) = self.entry.detach_reader(Instant::now()) {
            self.store.look_again(&self.entry, at);
        }
    }
}

#[async_trait]
impl EventReader for MemoryReader {
    async fn next(&mut self) -> Vec<Event> {
        loop {
            // Registered before looking, so that an append in between is not missed.
            let mut changed = pin!(self.entry.changed.notified());
            changed.as_mut().enable();
            if let Some(events) = self.entry.read(self.next) {
                if let Some(last) = events.last() {
                    self.next = last.sequence + 1;
                }
                return events;
            }
            changed.await;
        }
    }
}
