//! Lanes: queries that must reach the same worker, in a line of their own, and who holds it.
//!
//! A lane stands in another line only by its first query: in that of its holder, or in that of all open lanes. So opening
//! a lane, or holding it, costs the same however many queries wait in it, and it is never in the way of another. What was
//! shown before stays in those lines until it is met, and is told from what is shown now by its key.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    TOLERATED,
    order::{Item, Key, Order},
};
use crate::model::WorkerId;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Those that are held, and those with something waiting.
    all: HashMap<Arc<str>, Lane>,
    open: Shown,
    holders: HashMap<WorkerId, Holder>,
    held: usize,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub queries: Order,
    waiting: usize,
    holder: Option<WorkerId>,
    /// The first query, as it stands in the line of the holder or of the open lanes.
    shown: Option<Key>,
}

/// The first queries of some lanes.
#[derive(Debug, Default)]
struct Shown {
    order: Order,
    /// How many wait in all of these lanes.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Holder {
    lanes: BTreeSet<Arc<str>>,
    shown: Shown,
}

impl Lanes {
    /// Queries in lanes that nobody holds.
    pub(super) fn open(&self) -> usize {
        self.open.waiting
    }

    /// Queries in lanes that this worker holds.
    pub(super) fn waiting_for(&self, worker: WorkerId) -> usize {
        self.holders.get(&worker).map_or(0, |holder| holder.shown.waiting)
    }

    pub(super) fn holder(&self, name: &str) -> Option<WorkerId> {
        self.all.get(name)?.holder
    }

    pub(super) fn push(&mut self, name: &Arc<str>, item: Item) {
        if !self.all.contains_key(name) {
            self.all.insert(name.clone(), Lane::default());
        }
        let lane = self.all.get_mut(name).expect("inserted if it was missing");
        lane.queries.push(item);
        lane.waiting += 1;
        let holder = lane.holder;
        self.shown(holder).waiting += 1;
    }

    /// A query of a lane no longer waits in it.
    pub(super) fn left(&mut self, name: &str) {
        let lane = self.all.get_mut(name).expect("a lane with waiting queries is known");
        lane.waiting -= 1;
        let holder = lane.holder;
        if lane.queries.len() > 2 * lane.waiting + TOLERATED {
            lane.queries.keep(Item::is_live);
        }
        self.shown(holder).waiting -= 1;
    }

    /// The first query of the lanes that this worker holds, or of the open ones.
    pub(super) fn first(&mut self, holder: Option<WorkerId>) -> Option<Key> {
        loop {
            let shown = match holder {
                None => &self.open,
                Some(worker) => &self.holders.get(&worker)?.shown,
            };
            let item = shown.order.peek()?;
            if self.is_current(item, holder) {
                return Some(item.key());
            }
            self.shown(holder).order.pop();
        }
    }

    /// Takes out the query that [`Self::first`] has found.
    pub(super) fn pop(&mut self, holder: Option<WorkerId>) -> Option<Item> {
        let shown = self.shown(holder).order.pop()?;
        let lane = self.all.get_mut(shown.lane()?)?;
        lane.shown = None;
        lane.queries.pop()
    }

    /// A lane whose first query is as urgent as can be by now, in the lanes of a holder or in the open ones.
    pub(super) fn pop_ripened(&mut self, holder: Option<WorkerId>, epoch: u64) -> Option<Arc<str>> {
        loop {
            let item = self.shown_if_any(holder)?.order.pop_ripened(epoch)?;
            if self.is_current(&item, holder) {
                let name = item.lane()?;
                self.all.get_mut(name)?.shown = None;
                return Some(name.clone());
            }
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Lane> {
        self.all.get_mut(name)
    }

    /// To be called whenever something has changed in a lane: shows its first query, or forgets it.
    pub(super) fn show(&mut self, name: &str) {
        let Some(lane) = self.all.get_mut(name) else { return };
        let holder = lane.holder;
        let Some(first) = lane.queries.first_live() else {
            lane.shown = None;
            if holder.is_none() {
                self.all.remove(name);
                self.tidy(None);
            }
            return;
        };
        if lane.shown == Some(first.key()) {
            return;
        }
        lane.shown = Some(first.key());
        let first = first.clone();
        self.shown(holder).order.push(first);
        self.tidy(holder);
    }

    pub(super) fn hold(&mut self, name: &Arc<str>, worker: WorkerId) -> bool {
        let lane = self.all.entry(name.clone()).or_default();
        if let Some(holder) = lane.holder {
            return holder == worker;
        }
        lane.holder = Some(worker);
        lane.shown = None;
        let waiting = lane.waiting;
        self.held += 1;
        self.open.waiting -= waiting;
        let holder = self.holders.entry(worker).or_default();
        holder.lanes.insert(name.clone());
        holder.shown.waiting += waiting;
        true
    }

    /// Opens the lanes of a worker, or one of them. Says which.
    pub(super) fn let_go(&mut self, worker: WorkerId, name: Option<&str>) -> Vec<Arc<str>> {
        let Some(holder) = self.holders.get_mut(&worker) else { return Vec::new() };
        let freed: Vec<Arc<str>> = match name {
            Some(name) => holder.lanes.take(name).into_iter().collect(),
            None => std::mem::take(&mut holder.lanes).into_iter().collect(),
        };
        self.held -= freed.len();
        for name in &freed {
            let lane = self.all.get_mut(name).expect("a held lane is known");
            lane.holder = None;
            lane.shown = None;
            holder.shown.waiting -= lane.waiting;
            self.open.waiting += lane.waiting;
        }
        if holder.lanes.is_empty() {
            self.holders.remove(&worker);
        }
        freed
    }

    /// The first `most` open lanes, each with its first query.
    pub(super) fn first_open(&mut self, most: usize) -> Vec<Item> {
        let mut found: Vec<Item> = Vec::new();
        while found.len() < most
            && let Some(key) = self.first(None)
        {
            // One that was shown, taken away and shown again stands there twice, in a row.
            let again = found.last().is_some_and(|last| last.key() == key);
            found.extend(self.open.order.pop().filter(|_| !again));
        }
        for item in &found {
            self.open.order.push(item.clone());
        }
        found
    }

    /// Forgets all queries, but not who holds what.
    pub(super) fn clear(&mut self) {
        self.all.retain(|_, lane| lane.holder.is_some());
        for lane in self.all.values_mut() {
            *lane = Lane { holder: lane.holder, ..Lane::default() };
        }
        self.open = Shown::default();
        for holder in self.holders.values_mut() {
            holder.shown = Shown::default();
        }
    }

    /// Whether this is what its lane shows, and here.
    fn is_current(&self, item: &Item, holder: Option<WorkerId>) -> bool {
        let lane = item.lane().and_then(|name| self.all.get(name));
        lane.is_some_and(|lane| lane.holder == holder && lane.shown == Some(item.key()))
    }

    fn shown_if_any(&mut self, holder: Option<WorkerId>) -> Option<&mut Shown> {
        match holder {
            None => Some(&mut self.open),
            Some(worker) => self.holders.get_mut(&worker).map(|holder| &mut holder.shown),
        }
    }

    fn shown(&mut self, holder: Option<WorkerId>) -> &mut Shown {
        self.shown_if_any(holder).expect("whoever holds a lane is known")
    }

    /// Drops what is no longer shown, if it is the greater part.
    fn tidy(&mut self, holder: Option<WorkerId>) {
        let lanes = match holder {
            None => self.all.len() - self.held,
            Some(worker) => self.holders.get(&worker).map_or(0, |holder| holder.lanes.len()),
        };
        if self.shown(holder).order.len() <= 2 * lanes + TOLERATED {
            return;
        }
        let mut order = std::mem::take(&mut self.shown(holder).order);
        let mut seen = HashSet::new();
        order.keep(|item| {
            // Not twice, as in `first_open`.
            self.is_current(item, holder) && seen.insert(item.key().number)
        });
        self.shown(holder).order = order;
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let waiting: usize = self.all.values().map(|lane| lane.queries.len()).sum();
        let shown: usize = self.holders.values().map(|holder| holder.shown.order.len()).sum();
        self.all.len() + waiting + shown + self.open.order.len()
    }
}
