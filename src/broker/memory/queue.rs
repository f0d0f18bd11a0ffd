//! The waiting queries of one kind, in the order in which they are to be served.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use parking_lot::Mutex;

use super::entry::Entry;

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

/// Below this size a heap is never rebuilt.
const REBUILD_FROM: usize = 1_024;

impl KindQueue {
    /// `waiting` is how many queries of the kind wait now, this one included.
    pub(super) fn push(&self, entry: Arc<Entry>, waiting: usize) {
        let mut heap = self.heap.lock();
        if heap.len() >= REBUILD_FROM && heap.len() > 2 * waiting {
            heap.retain(|waiting| waiting.entry.is_pending());
        }
        heap.push(Waiting { priority: entry.spec.priority, arrival: entry.number, entry });
    }

    /// The first in line. It may have stopped waiting: the caller checks under the entry's own lock.
    pub(super) fn pop(&self) -> Option<Arc<Entry>> {
        self.heap.lock().pop().map(|waiting| waiting.entry)
    }

    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        self.heap.lock().drain().map(|waiting| waiting.entry).collect()
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
