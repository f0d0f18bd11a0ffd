//! A cursor on the log of one query of the memory broker.

use std::{pin::pin, sync::Arc, time::Instant};

use async_trait::async_trait;

use crate::{
    broker::{EventReader, Unavailable},
    model::{Event, EventBody},
};

use super::{entry::Entry, record::Bells, store::Store};

#[derive(Debug)]
pub(super) struct MemoryReader {
    store: Arc<Store>,
    entry: Arc<Entry>,
    bells: Arc<Bells>,
    number: u64,
    next: u64,
    /// Whether the final event was given out.
    told_end: bool,
}

impl MemoryReader {
    pub(super) fn new(store: Arc<Store>, entry: Arc<Entry>, from: u64) -> Self {
        let number = entry.attach_reader(from);
        let bells = entry.bells();
        Self { store, entry, bells, number, next: from, told_end: false }
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

#[async_trait]
impl EventReader for MemoryReader {
    async fn next(&mut self) -> Result<Vec<Event>, Unavailable> {
        let bells = self.bells.clone();
        loop {
            // Registered before looking, so that an append in between is not missed.
            let mut changed = pin!(bells.changed.notified());
            changed.as_mut().enable();
            if let Some(events) = self.entry.read(self.number, self.next) {
                let Some(last) = events.last() else { return Ok(self.end()) };
                self.next = last.sequence + 1;
                self.told_end = matches!(last.body, EventBody::Ended(_));
                return Ok(events);
            }
            changed.await;
        }
    }
}
