//! A line of queries in the order in which they are to be served.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use super::super::entry::Entry;

/// What a query is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub rank: u64,
    pub tag: u64,
    /// Order of arrival.
    pub number: u64,
}

/// The place in line that a query keeps while a worker has it.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Ticket {
    pub rank: u64,
    pub tag: u64,
}

/// A query in line.
#[derive(Debug, Clone)]
pub(in super::super) struct Item {
    pub rank: u64,
    pub tag: u64,
    pub entry: Arc<Entry>,
}

/// A min-heap in two parts, so that those that have become urgent while they waited are found without touching the others.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Those of rank 0.
    ripe: BinaryHeap<Item>,
    ripening: BinaryHeap<Item>,
}

impl Item {
    pub(in super::super) fn new(ticket: Ticket, entry: Arc<Entry>) -> Self {
        Self { rank: ticket.rank, tag: ticket.tag, entry }
    }

    pub(in super::super) fn ticket(&self) -> Ticket {
        Ticket { rank: self.rank, tag: self.tag }
    }

    pub(super) fn key(&self) -> Key {
        Key { rank: self.rank, tag: self.tag, number: self.entry.fixed.number }
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.entry.owner()
    }

    pub(super) fn lane(&self) -> Option<&Arc<str>> {
        self.entry.fixed.lane.as_ref()
    }

    /// Whether it still waits, here.
    pub(super) fn is_live(&self) -> bool {
        self.entry.spot.is_in_line()
    }
}

impl Order {
    pub(super) fn push(&mut self, item: Item) {
        let part = if item.rank == 0 { &mut self.ripe } else { &mut self.ripening };
        part.push(item);
    }

    pub(super) fn peek(&self) -> Option<&Item> {
        self.ripe.peek().or_else(|| self.ripening.peek())
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        self.ripe.pop().or_else(|| self.ripening.pop())
    }

    /// The first that is as urgent as can be by now.
    pub(super) fn pop_ripened(&mut self, epoch: u64) -> Option<Item> {
        self.ripening.peek().filter(|item| item.rank <= epoch)?;
        self.ripening.pop()
    }

    /// Drops those at the front that no longer wait, and says who is first then.
    pub(super) fn first_live(&mut self) -> Option<&Item> {
        while self.peek().is_some_and(|item| !item.is_live()) {
            self.pop();
        }
        self.peek()
    }

    /// Those that wait here, in no order.
    pub(super) fn live(&self) -> impl Iterator<Item = &Item> {
        self.ripe.iter().chain(&self.ripening).filter(|item| item.is_live())
    }

    pub(super) fn len(&self) -> usize {
        self.ripe.len() + self.ripening.len()
    }

    pub(super) fn keep(&mut self, mut wanted: impl FnMut(&Item) -> bool) {
        self.ripe.retain(&mut wanted);
        self.ripening.retain(&mut wanted);
        self.ripe.shrink_to(2 * self.ripe.len());
        self.ripening.shrink_to(2 * self.ripening.len());
    }
}

impl Ord for Item {
    /// `BinaryHeap` pops the greatest, so the one to serve first is the greatest. The arrival stands in the entry, which is
    /// looked at only if nothing else decides.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_tag = (other.rank, other.tag).cmp(&(self.rank, self.tag));
        by_tag.then_with(|| other.entry.fixed.number.cmp(&self.entry.fixed.number))
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Item {}
