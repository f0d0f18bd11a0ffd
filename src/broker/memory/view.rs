//! Read access to one query of the memory broker: its events and its description.

use std::{sync::Arc, task::Waker, time::Instant};

use tokio::sync::Notify;

use crate::{
    broker::{DeadLetter, EventSlice, QueryInfo},
    model::{Event, QueryId},
};

use super::{
    entry::Entry,
    record::{Record, RunState},
};

/// Events in one read, capped to bound how long the lock is held.
const READ_MAX_EVENTS: usize = 256;

/// The result of a read.
#[derive(Debug)]
pub(super) struct ReadResult {
    /// Empty at the end of the log.
    pub batch: Vec<EventSlice>,
    /// True if the batch reaches the final event.
    pub over: bool,
}

/// Wakes a lease that waits for room in the log.
fn notify_room(room: Option<Arc<Notify>>) {
    if let Some(room) = room {
        room.notify_waiters();
    }
}

impl Entry {
    /// Notified when a reader has made progress.
    pub(super) fn room(&self) -> Arc<Notify> {
        self.record.lock().run_mut().room.get_or_insert_default().clone()
    }

    pub(super) fn attach_reader(&self, from: u64) -> u64 {
        self.record.lock().run_mut().readers.attach(from)
    }

    /// Removes a reader. Returns the time at which the query counts as abandoned, if this was its last one.
    pub(super) fn detach_reader(&self, reader: u64, now: Instant) -> Option<Instant> {
        let mut record = self.record.lock();
        let readers = &mut record.run_mut().readers;
        readers.detach(reader, now);
        let unread = readers.is_empty() && !record.state.is_terminal();
        let room = record.room();
        drop(record);
        notify_room(room);
        self.meta.abandon_after.filter(|_| unread).and_then(|patience| now.checked_add(patience))
    }

    /// The next events from `from` on. `None` while there are none yet; the reader is woken when there are.
    pub(super) fn read(&self, reader: u64, from: u64, waker: &Waker) -> Option<ReadResult> {
        let mut record = self.record.lock();
        let run = record.run_mut();
        let batch = run.log.read(from, READ_MAX_EVENTS);
        if let Some(next) = batch.last().map(EventSlice::end) {
            run.readers.advance(reader, next);
            let over = run.log.next() == next && record.state.is_terminal();
            let room = record.room();
            drop(record);
            notify_room(room);
            return Some(ReadResult { batch, over });
        }
        if record.state.is_terminal() {
            return Some(ReadResult { batch, over: true });
        }
        record.run_mut().readers.set_waker(reader, waker);
        None
    }

    /// The last event of an ended query.
    pub(super) fn final_event(&self) -> Option<Arc<Event>> {
        let record = self.record.lock();
        let log = &record.run()?.log;
        log.last().cloned()
    }

    pub(super) fn info(&self) -> QueryInfo {
        self.describe(&self.record.lock())
    }

    /// Bytes of its payload, its events and the failures of its attempts.
    pub(super) fn weight(&self) -> usize {
        let record = self.record.lock();
        let events_and_failures = record.run().map_or(0, |run| {
            run.log.bytes() + run.failures.iter().map(|failed| failed.failure.weight()).sum::<usize>()
        });
        self.payload_bytes() + events_and_failures
    }

    /// The query as a dead letter, if it is one.
    pub(super) fn dead_letter(&self) -> Option<DeadLetter> {
        let record = self.record.lock();
        let run = record.run().filter(|run| run.dead_letter)?;
        Some(DeadLetter {
            query: self.describe(&record),
            payload: self.meta.spec.payload.clone(),
            failures: run.failures.clone(),
        })
    }

    /// Records that the dead letter was submitted again; it is a plain ended query from now on.
    pub(super) fn record_requeue(&self, id: QueryId) {
        let mut record = self.record.lock();
        let run = record.run_mut();
        run.dead_letter = false;
        run.requeued_as = Some(id);
    }

    fn describe(&self, record: &Record) -> QueryInfo {
        let spec = &self.meta.spec;
        let not_run = RunState::default();
        let run = record.run().unwrap_or(&not_run);
        QueryInfo {
            id: self.meta.id.clone(),
            kind: spec.kind.clone(),
            query_type: spec.query_type.clone(),
            priority: spec.priority,
            owner: spec.owner.clone(),
            key: spec.key.clone(),
            state: record.state,
            attempts: run.attempts.attempt,
            worker: run.worker,
            submitted_at: self.submitted_at(),
            started_at: run.started_at,
            ended_at: run.ended_at,
            first_sequence: run.log.first(),
            next_sequence: run.log.next(),
            dead_letter: run.dead_letter,
            requeued_from: self.meta.rare.as_ref().and_then(|rare| rare.requeued_from.clone()),
            requeued_as: run.requeued_as.clone(),
        }
    }
}
