//! The lines of one kind: who joins, who leaves, and who is first. Everything here happens under one lock.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    TOLERATED,
    ages::Ages,
    aside::Aside,
    clock::Clocks,
    lanes::Lanes,
    order::{Item, Order},
    spot::Place,
};
use crate::{
    broker::{Demand, memory::entry::Entry},
    model::WorkerId,
};

/// So many at most are moved at once when they become as urgent as can be, so that nobody waits for long for the lock.
const RIPEN_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Lines {
    aging: Option<Aging>,
    /// How many steps of aging there have been.
    epoch: u64,
    pub clocks: Clocks,
    /// Queries without a lane.
    pub free: Order,
    free_waiting: usize,
    pub lanes: Lanes,
    aside: Aside,
    pub ages: Ages,
    /// All that wait, in line or aside.
    waiting: usize,
    /// There is something for others to look at, beside what the caller asked for.
    pub news: bool,
}

#[derive(Debug, Clone, Copy)]
struct Aging {
    start: Instant,
    step: Duration,
}

impl Lines {
    pub(super) fn new(aging: Option<Duration>, start: Instant) -> Self {
        Self {
            aging: aging.filter(|step| !step.is_zero()).map(|step| Aging { start, step }),
            epoch: 0,
            clocks: Clocks::default(),
            free: Order::default(),
            free_waiting: 0,
            lanes: Lanes::default(),
            aside: Aside::default(),
            ages: Ages::default(),
            waiting: 0,
            news: false,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.free_waiting + self.lanes.open()
    }

    /// A query begins to wait.
    ///
    /// Its rank is its priority, and the epoch on top of it: who came an epoch earlier counts as one priority more urgent.
    /// Rank 0 is as urgent as can be; with priority 0 one begins there, the others get there when the epoch has come to
    /// their rank.
    pub(super) fn push(&mut self, entry: Arc<Entry>, now: Instant) {
        self.ripen(None, now);
        let priority = entry.fixed.spec.priority;
        let rank = if priority == 0 { 0 } else { u64::from(priority) + self.epoch };
        let tag = self.clocks.join(rank, entry.owner());
        self.ages.push(entry.clone());
        self.waiting += 1;
        self.insert(Item { rank, tag, entry });
    }

    /// A query that had been taken waits again, at its old place.
    pub(super) fn put_back(&mut self, item: Item) {
        self.clocks.rejoin(item.rank, item.owner(), item.tag);
        self.ages.put_back(item.entry.clone());
        self.waiting += 1;
        self.insert(item);
    }

    fn insert(&mut self, item: Item) {
        item.entry.spot.set(Place::InLine { rank: item.rank });
        let Some(name) = item.lane().cloned() else {
            self.free_waiting += 1;
            self.free.push(item);
            return;
        };
        self.lanes.push(&name, item);
        self.show(&name);
    }

    /// A query ended while it waited. Says whether another came back in its place.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        match entry.spot.get() {
            Place::Nowhere => false,
            Place::InLine { rank } => {
                self.leave_line(entry, Place::Nowhere);
                self.leave(entry, rank);
                entry.owner().is_some_and(|owner| self.bring_back(owner))
            }
            Place::Aside { rank } => {
                entry.spot.set(Place::Nowhere);
                self.aside.left(entry.owner().expect("only an owner has a limit"), entry.fixed.lane.as_ref());
                self.leave(entry, rank);
                false
            }
        }
    }

    /// A query that stands in no line, and not aside either, is not waiting.
    pub(super) fn leave(&mut self, entry: &Entry, rank: u64) {
        self.clocks.leave(rank, entry.owner());
        self.waiting -= 1;
        self.ages.left(entry.fixed.spec.priority);
        if self.ages.len() > 2 * self.waiting + TOLERATED {
            self.ages.keep_waiting();
        }
    }

    pub(super) fn leave_line(&mut self, entry: &Entry, to: Place) {
        entry.spot.set(to);
        if let Some(name) = &entry.fixed.lane {
            self.lanes.left(name);
            self.show(name);
            return;
        }
        self.free_waiting -= 1;
        if self.free.len() > 2 * self.free_waiting + TOLERATED {
            self.free.keep(Item::is_live);
        }
    }

    /// The owner of a query runs as many as it may.
    pub(super) fn set_aside(&mut self, item: Item) {
        self.leave_line(&item.entry, Place::Aside { rank: item.rank });
        let entry = item.entry.clone();
        let is_held = item.lane().is_some_and(|name| self.lanes.holder(name).is_some());
        self.aside.push(entry.owner().expect("only an owner has a limit"), item, is_held);
    }

    /// An owner may run one more: what comes first of its queries that stand aside may be tried again. Says whether there
    /// was any.
    pub(super) fn bring_back(&mut self, owner: &str) -> bool {
        let Self { aside, lanes, .. } = self;
        let back = aside.bring_back(owner, |name| lanes.holder(name).is_some());
        let any = !back.is_empty();
        for item in back {
            self.insert(item);
        }
        any
    }

    /// A lane was open and is held now. Its queries use up nobody's turn any more, and those aside may be its holder's
    /// next.
    pub(super) fn now_held(&mut self, name: &Arc<str>) {
        if self.aside.is_empty() {
            return;
        }
        for item in self.aside.held(name) {
            self.insert(item);
            self.news = true;
        }
        let owners: BTreeSet<Box<str>> = match self.lanes.get_mut(name) {
            Some(lane) => lane.queries.live().filter_map(Item::owner).map(Box::from).collect(),
            None => return,
        };
        for owner in owners {
            self.news |= self.bring_back(&owner);
        }
    }

    /// Something has changed in a lane.
    pub(super) fn show(&mut self, name: &str) {
        let Self { lanes, clocks, epoch, .. } = self;
        if let Some(lane) = lanes.get_mut(name) {
            ripen(&mut lane.queries, *epoch, clocks);
        }
        lanes.show(name);
    }

    /// Moves what has become as urgent as can be. In a lane that happens when something changes in it, or when it happens to
    /// its first query.
    pub(super) fn ripen(&mut self, worker: Option<WorkerId>, now: Instant) {
        let Some(aging) = self.aging else { return };
        let steps = now.saturating_duration_since(aging.start).as_nanos() / aging.step.as_nanos();
        self.epoch = self.epoch.max(u64::try_from(steps).unwrap_or(u64::MAX >> 8));
        ripen(&mut self.free, self.epoch, &mut self.clocks);
        for holder in [None, worker].into_iter().take(1 + usize::from(worker.is_some())) {
            for _ in 0..RIPEN_AT_ONCE {
                let Some(name) = self.lanes.pop_ripened(holder, self.epoch) else { break };
                self.show(&name);
            }
        }
    }

    pub(super) fn hold(&mut self, name: &Arc<str>, worker: WorkerId) -> bool {
        let was_open = self.lanes.holder(name).is_none();
        let held = self.lanes.hold(name, worker);
        self.show(name);
        if was_open {
            self.now_held(name);
        }
        held
    }

    pub(super) fn let_go(&mut self, worker: WorkerId, name: Option<&str>) {
        for name in self.lanes.let_go(worker, name) {
            self.show(&name);
        }
    }

    pub(super) fn demand(&mut self, most: usize) -> Demand {
        let lanes = self.lanes.first_open(most);
        let open = |entry: &Entry| {
            let held = entry.fixed.lane.as_ref().and_then(|name| self.lanes.holder(name)).is_some();
            entry.spot.is_in_line() && !held
        };
        // Not all are looked at by age. Whoever is next in an open line is among those that wait in any case.
        let oldest = self.ages.oldest(open).map(|entry| entry.submitted);
        let next = self.free.first_live().map(|item| item.entry.submitted);
        let next_in_lane = self.lanes.first_open(1).first().map(|item| item.entry.submitted);
        Demand {
            waiting: self.waiting,
            open: self.open(),
            oldest: [oldest, next, next_in_lane].into_iter().flatten().min(),
            lanes_since: lanes.iter().map(|item| item.entry.submitted).collect(),
            lanes: lanes.iter().filter_map(Item::lane).cloned().collect(),
        }
    }

    /// Takes out all that wait. Lanes stay with their holders.
    pub(super) fn drain(&mut self) -> Vec<Arc<Entry>> {
        let all = self.ages.drain();
        for entry in &all {
            entry.spot.set(Place::Nowhere);
        }
        self.clocks.clear();
        self.free = Order::default();
        self.free_waiting = 0;
        self.lanes.clear();
        self.aside.clear();
        self.waiting = 0;
        all
    }
}

/// Each query is moved at most once, and gets a tag among those that it now competes with.
fn ripen(order: &mut Order, epoch: u64, clocks: &mut Clocks) {
    let mut moved = 0;
    while moved < RIPEN_AT_ONCE {
        let Some(item) = order.pop_ripened(epoch) else { break };
        if item.is_live() {
            clocks.leave(item.rank, item.owner());
            let tag = clocks.join(0, item.owner());
            item.entry.spot.set(Place::InLine { rank: 0 });
            order.push(Item { rank: 0, tag, ..item });
            moved += 1;
        }
    }
}
