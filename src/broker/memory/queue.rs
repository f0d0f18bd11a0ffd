//! The waiting queries of one kind, in the order in which they are to be served.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use super::entry::Entry;
use crate::sync::Mutex;

/// A min-heap on (priority, arrival). Queries that stopped waiting stay in it until they are popped, which costs the
/// one who cancels nothing; when they outnumber the others the heap is rebuilt without them.
#[derive(Debug, Default)]
pub(super) struct KindQueue {
    heap: Mutex<BinaryHeap<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    priority: u32,
    arrival: u64,
    entry: Arc<Entry>,
}

/// So many that no longer wait are let be.
const TOLERATED: usize = 16;

impl KindQueue {
    /// `waiting` is how many queries of the kind wait now, this one included.
    pub(super) fn push(&self, entry: Arc<Entry>, waiting: usize) {
        let mut heap = self.heap.lock();
        tidy(&mut heap, waiting);
        heap.push(Waiting { priority: entry.fixed.spec.priority, arrival: entry.fixed.number, entry });
    }

    /// Lets go of queries that no longer wait, if there are many.
    pub(super) fn tidy(&self, waiting: usize) {
        tidy(&mut self.heap.lock(), waiting);
    }

    /// The first in line. It may have stopped waiting: the caller checks under the entry's own lock.
    pub(super) fn pop(&self) -> Option<Arc<Entry>> {
        self.heap.lock().pop().map(|waiting| waiting.entry)
    }

    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        self.heap.lock().drain().map(|waiting| waiting.entry).collect()
    }
}

fn tidy(heap: &mut BinaryHeap<Waiting>, waiting: usize) {
    if heap.len() > 2 * waiting + TOLERATED {
        heap.retain(|waiting| waiting.entry.is_pending());
    }
}

impl Ord for Waiting {
    /// `BinaryHeap` pops the greatest, so the one to serve first is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.priority, other.arrival).cmp(&(self.priority, self.arrival))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
