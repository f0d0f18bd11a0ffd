//! A heap of queries in the order in which they are to be served.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use super::super::entry::Entry;

/// Sort key of a waiting query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankKey {
    pub rank: u64,
    pub tag: u64,
    /// Arrival number.
    pub number: u64,
}

/// Rank and tag that a query keeps while a worker has it.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct RankTag {
    pub rank: u64,
    pub tag: u64,
}

/// A waiting query with its rank and tag.
#[derive(Debug, Clone)]
pub(in super::super) struct QueuedQuery {
    pub rank: u64,
    pub tag: u64,
    pub entry: Arc<Entry>,
}

/// A min-heap in two parts, so that queries that are due for promotion are found without touching the others.
#[derive(Debug, Default)]
pub(super) struct RankHeap {
    /// Queries of rank 0.
    urgent: BinaryHeap<QueuedQuery>,
    aging: BinaryHeap<QueuedQuery>,
}

impl QueuedQuery {
    pub(in super::super) fn new(rank_tag: RankTag, entry: Arc<Entry>) -> Self {
        Self { rank: rank_tag.rank, tag: rank_tag.tag, entry }
    }

    pub(in super::super) fn rank_tag(&self) -> RankTag {
        RankTag { rank: self.rank, tag: self.tag }
    }

    pub(super) fn key(&self) -> RankKey {
        RankKey { rank: self.rank, tag: self.tag, number: self.entry.meta.number }
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.entry.owner()
    }

    pub(super) fn lane(&self) -> Option<&Arc<str>> {
        self.entry.meta.lane.as_ref()
    }

    /// False for an entry whose query has left the queue.
    pub(super) fn is_live(&self) -> bool {
        self.entry.position.is_queued()
    }
}

impl RankHeap {
    pub(super) fn push(&mut self, item: QueuedQuery) {
        let part = if item.rank == 0 { &mut self.urgent } else { &mut self.aging };
        part.push(item);
    }

    pub(super) fn peek(&self) -> Option<&QueuedQuery> {
        self.urgent.peek().or_else(|| self.aging.peek())
    }

    pub(super) fn pop(&mut self) -> Option<QueuedQuery> {
        self.urgent.pop().or_else(|| self.aging.pop())
    }

    /// Takes the first query whose rank the epoch has reached.
    pub(super) fn pop_promotable(&mut self, epoch: u64) -> Option<QueuedQuery> {
        self.aging.peek().filter(|item| item.rank <= epoch)?;
        self.aging.pop()
    }

    /// The first live query. Drops stale entries before it.
    pub(super) fn first_live(&mut self) -> Option<&QueuedQuery> {
        while self.peek().is_some_and(|item| !item.is_live()) {
            self.pop();
        }
        self.peek()
    }

    /// The live queries, in no order.
    pub(super) fn live(&self) -> impl Iterator<Item = &QueuedQuery> {
        self.urgent.iter().chain(&self.aging).filter(|item| item.is_live())
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.aging.len()
    }

    pub(super) fn keep(&mut self, mut wanted: impl FnMut(&QueuedQuery) -> bool) {
        self.urgent.retain(&mut wanted);
        self.aging.retain(&mut wanted);
        self.urgent.shrink_to(2 * self.urgent.len());
        self.aging.shrink_to(2 * self.aging.len());
    }
}

impl Ord for QueuedQuery {
    /// `BinaryHeap` pops the greatest, so the order is reversed. The arrival number costs an access to the entry, so it is
    /// compared last.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_tag = (other.rank, other.tag).cmp(&(self.rank, self.tag));
        by_tag.then_with(|| other.entry.meta.number.cmp(&self.entry.meta.number))
    }
}

impl PartialOrd for QueuedQuery {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedQuery {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QueuedQuery {}
