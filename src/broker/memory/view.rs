//! One query of the memory broker as others see it: its events, and what is known of it.

use std::{sync::Arc, task::Waker, time::Instant};

use tokio::sync::Notify;

use crate::{
    broker::{DeadLetter, EventSlice, QueryInfo},
    model::{Event, QueryId},
};

use super::{
    entry::Entry,
    record::{Record, Story},
};

/// The most events a reader takes at once, so that one lock is never held for long.
const READ_BATCH: usize = 256;

/// The result of a read.
#[derive(Debug)]
pub(super) struct Read {
    /// Empty at the end of the log.
    pub batch: Vec<EventSlice>,
    /// True if the batch reaches the final event.
    pub over: bool,
}

/// A reader came along.
fn make_room(room: Option<Arc<Notify>>) {
    if let Some(room) = room {
        room.notify_waiters();
    }
}

impl Entry {
    /// What wakes those who wait for its readers to come along.
    pub(super) fn room(&self) -> Arc<Notify> {
        self.record.lock().story_mut().room.get_or_insert_default().clone()
    }

    pub(super) fn attach_reader(&self, from: u64) -> u64 {
        self.record.lock().story_mut().readers.attach(from)
    }

    /// Says when the query is to be looked at again because its last reader left.
    pub(super) fn detach_reader(&self, reader: u64, now: Instant) -> Option<Instant> {
        let mut record = self.record.lock();
        let readers = &mut record.story_mut().readers;
        readers.detach(reader, now);
        let unread = readers.is_empty() && !record.state.is_terminal();
        let room = record.room();
        drop(record);
        make_room(room);
        self.fixed.abandon_after.filter(|_| unread).and_then(|patience| now.checked_add(patience))
    }

    /// The next events from `from` on; `None` while there are none yet, and then the reader is woken when there are.
    pub(super) fn read(&self, reader: u64, from: u64, waker: &Waker) -> Option<Read> {
        let mut record = self.record.lock();
        let story = record.story_mut();
        let batch = story.log.read(from, READ_BATCH);
        if let Some(next) = batch.last().map(EventSlice::end) {
            story.readers.moved(reader, next);
            let over = story.log.next() == next && record.state.is_terminal();
            let room = record.room();
            drop(record);
            make_room(room);
            return Some(Read { batch, over });
        }
        if record.state.is_terminal() {
            return Some(Read { batch, over: true });
        }
        record.story_mut().readers.waits(reader, waker);
        None
    }

    /// The last event of an ended query.
    pub(super) fn final_event(&self) -> Option<Arc<Event>> {
        let record = self.record.lock();
        let log = &record.story()?.log;
        log.last().cloned()
    }

    pub(super) fn info(&self) -> QueryInfo {
        self.describe(&self.record.lock())
    }

    /// The bytes of all that is kept of it: its payload, its events, and how its attempts failed.
    pub(super) fn weight(&self) -> usize {
        let record = self.record.lock();
        let told = record.story().map_or(0, |story| {
            story.log.bytes() + story.failures.iter().map(|failed| failed.failure.weight()).sum::<usize>()
        });
        self.payload_bytes() + told
    }

    /// The query as a dead letter, if it is one.
    pub(super) fn dead_letter(&self) -> Option<DeadLetter> {
        let record = self.record.lock();
        let story = record.story().filter(|story| story.dead_letter)?;
        Some(DeadLetter {
            query: self.describe(&record),
            payload: self.fixed.spec.payload.clone(),
            failures: story.failures.clone(),
        })
    }

    /// The dead letter lives again under another id, and is a plain ended query from now on.
    pub(super) fn requeued_as(&self, id: QueryId) {
        let mut record = self.record.lock();
        let story = record.story_mut();
        story.dead_letter = false;
        story.requeued_as = Some(id);
    }

    fn describe(&self, record: &Record) -> QueryInfo {
        let spec = &self.fixed.spec;
        let untold = Story::default();
        let story = record.story().unwrap_or(&untold);
        QueryInfo {
            id: self.fixed.id.clone(),
            kind: spec.kind.clone(),
            query_type: spec.query_type.clone(),
            priority: spec.priority,
            owner: spec.owner.clone(),
            key: spec.key.clone(),
            state: record.state,
            attempts: story.attempts.attempt,
            worker: story.worker,
            submitted_at: self.submitted_at(),
            started_at: story.started_at,
            ended_at: story.ended_at,
            first_sequence: story.log.first(),
            next_sequence: story.log.next(),
            dead_letter: story.dead_letter,
            requeued_from: self.fixed.extras.as_ref().and_then(|extras| extras.requeued_from.clone()),
            requeued_as: story.requeued_as.clone(),
        }
    }
}
