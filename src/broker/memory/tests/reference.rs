//! The order in which queries are served, in the plainest way: a list that is searched from end to end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::broker::ClaimScope;

pub(super) type Key = (u64, u64, u64);

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub number: u64,
    pub owner: Option<u8>,
    pub lane: Option<u8>,
    pub rank: u64,
    pub tag: u64,
    pub throttled: bool,
}

#[derive(Debug, Default)]
struct FairClock {
    now: u64,
    waiting: usize,
    next: HashMap<Option<u8>, u64>,
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    max_running: Option<usize>,
    pub waiting: Vec<Waiting>,
    pub running: Vec<Waiting>,
    pub holders: BTreeMap<u8, u64>,
    epoch: u64,
    clocks: BTreeMap<u64, FairClock>,
}

impl Waiting {
    fn key(&self) -> Key {
        (self.rank, self.tag, self.number)
    }
}

impl Reference {
    pub(super) fn new(max_running: Option<usize>) -> Self {
        Self { max_running, ..Self::default() }
    }

    fn holder(&self, query: &Waiting) -> Option<u64> {
        query.lane.and_then(|lane| self.holders.get(&lane)).copied()
    }

    fn first(&self, wanted: impl Fn(&Waiting) -> bool) -> Option<usize> {
        let found = self.waiting.iter().enumerate().filter(|(_, query)| wanted(query));
        found.min_by_key(|(_, query)| query.key()).map(|(at, _)| at)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|query| !query.throttled && self.holder(query).is_none())
    }

    pub(super) fn waits_for(&self, worker: u64) -> bool {
        self.waiting.iter().any(|query| !query.throttled && self.holder(query) == Some(worker))
    }

    /// Open lanes in the order of their first queries, each with the number of that.
    pub(super) fn open_lanes(&self) -> Vec<(u8, u64)> {
        let mut firsts = BTreeMap::<u8, Key>::new();
        for query in self.open() {
            if let Some(lane) = query.lane {
                let first = firsts.entry(lane).or_insert(query.key());
                *first = (*first).min(query.key());
            }
        }
        let mut lanes: Vec<_> = firsts.into_iter().collect();
        lanes.sort_by_key(|(_, key)| *key);
        lanes.into_iter().map(|(lane, key)| (lane, key.2)).collect()
    }

    fn join(&mut self, rank: u64, owner: Option<u8>) -> u64 {
        let clock = self.clocks.entry(rank).or_default();
        clock.waiting += 1;
        let next = clock.next.entry(owner).or_default();
        let tag = (*next).max(clock.now);
        *next = tag + 1;
        tag
    }

    fn leave(&mut self, rank: u64) {
        let clock = self.clocks.get_mut(&rank).unwrap();
        clock.waiting -= 1;
        if clock.waiting == 0 {
            self.clocks.remove(&rank);
        }
    }

    fn ripen_first(&mut self, wanted: impl Fn(&Waiting) -> bool) -> bool {
        let epoch = self.epoch;
        let is_due = |query: &Waiting| !query.throttled && query.rank > 0 && query.rank <= epoch && wanted(query);
        let Some(at) = self.first(is_due) else { return false };
        self.leave(self.waiting[at].rank);
        self.waiting[at].tag = self.join(0, self.waiting[at].owner);
        self.waiting[at].rank = 0;
        true
    }

    fn touch(&mut self, lane: Option<u8>) {
        while lane.is_some() && self.ripen_first(|query| query.lane == lane) {}
    }

    fn advance(&mut self, epoch: u64, worker: Option<u64>) {
        self.epoch = epoch;
        while self.ripen_first(|query| query.lane.is_none()) {}
        for holder in std::iter::once(None).chain(worker.map(Some)) {
            loop {
                let firsts: Vec<_> = (0..8)
                    .filter(|lane| self.holders.get(lane).copied() == holder)
                    .filter_map(|lane| self.first(|query| !query.throttled && query.lane == Some(lane)))
                    .map(|at| &self.waiting[at])
                    .filter(|first| first.rank > 0 && first.rank <= epoch)
                    .collect();
                let Some(lane) = firsts.iter().min_by_key(|first| first.key()).map(|first| first.lane) else { break };
                self.touch(lane);
            }
        }
    }

    pub(super) fn submit(&mut self, number: u64, priority: u32, (owner, lane): (Option<u8>, Option<u8>), epoch: u64) {
        self.advance(epoch, None);
        let rank = if priority == 0 { 0 } else { u64::from(priority) + epoch };
        let tag = self.join(rank, owner);
        self.waiting.push(Waiting { number, owner, lane, rank, tag, throttled: false });
        self.touch(lane);
    }

    pub(super) fn claim(&mut self, worker: u64, scope: ClaimScope, takes_lane: bool, epoch: u64) -> Option<u64> {
        self.advance(epoch, Some(worker));
        loop {
            let anyones = self.first(|query| !query.throttled && self.holder(query).is_none());
            let own = self.first(|query| !query.throttled && self.holder(query) == Some(worker));
            let open = anyones.filter(|_| scope == ClaimScope::Open);
            let at = open.into_iter().chain(own).min_by_key(|at| self.waiting[*at].key())?;
            let lane = self.waiting[at].lane;
            if self.is_busy(self.waiting[at].owner) {
                self.waiting[at].throttled = true;
                self.touch(lane);
                continue;
            }
            self.advance_clock(at, anyones.filter(|_| Some(at) == own));
            let newly = lane.filter(|lane| takes_lane && !self.holders.contains_key(lane));
            self.holders.extend(newly.map(|lane| (lane, worker)));
            let query = self.waiting.swap_remove(at);
            self.touch(lane);
            self.leave(query.rank);
            let number = query.number;
            self.running.push(query);
            if let Some(lane) = newly {
                self.on_lane_held(lane);
            }
            return Some(number);
        }
    }

    fn is_busy(&self, owner: Option<u8>) -> bool {
        let running = self.running.iter().filter(|query| query.owner == owner).count();
        owner.is_some() && self.max_running.is_some_and(|limit| running >= limit)
    }

    fn advance_clock(&mut self, at: usize, other: Option<usize>) {
        let (rank, tag, _) = self.waiting[at].key();
        let other = other.map(|other| self.waiting[other].key()).filter(|other| other.0 <= rank);
        let clock = self.clocks.get_mut(&rank).unwrap();
        match other {
            Some(other) if other.0 < rank => {}
            Some(other) => clock.now = clock.now.max(tag.min(other.1)),
            None => clock.now = clock.now.max(tag),
        }
    }

    pub(super) fn cancel(&mut self, number: u64) {
        let Some(at) = self.waiting.iter().position(|query| query.number == number) else { return };
        let query = self.waiting.swap_remove(at);
        if query.throttled {
            self.leave(query.rank);
            return;
        }
        self.touch(query.lane);
        self.leave(query.rank);
        self.resume_owner(query.owner);
    }

    /// One of those that anyone could take, and one of each lane that is held: a query that waits for its worker does not
    /// use up the turn of another.
    fn resume_owner(&mut self, owner: Option<u8>) {
        let is_throttled = |query: &Waiting| query.throttled && query.owner == owner;
        let mut back: Vec<_> =
            self.first(|query| is_throttled(query) && self.holder(query).is_none()).into_iter().collect();
        for lane in self.holders.keys() {
            back.extend(self.first(|query| is_throttled(query) && query.lane == Some(*lane)));
        }
        self.back_in_line(back);
    }

    fn back_in_line(&mut self, back: Vec<usize>) {
        for at in back {
            self.waiting[at].throttled = false;
            self.touch(self.waiting[at].lane);
        }
    }

    /// The same for a lane that was open: each owner's first may be its holder's next, and those that were open have used
    /// up nobody's turn.
    fn on_lane_held(&mut self, lane: u8) {
        let owners: BTreeSet<_> = self.waiting.iter().map(|query| query.owner).collect();
        let in_lane = |query: &Waiting, owner| query.lane == Some(lane) && query.owner == owner;
        let firsts = owners.iter().filter_map(|owner| self.first(|query| query.throttled && in_lane(query, *owner)));
        self.back_in_line(firsts.collect());
        for owner in owners {
            if self.waiting.iter().any(|query| !query.throttled && in_lane(query, owner)) {
                self.resume_owner(owner);
            }
        }
    }

    /// True if each owner that may run one more has a query in line wherever it has one at all: among those that anyone
    /// could take, and in each lane that is held.
    pub(super) fn nobody_is_blocked(&self) -> bool {
        let place = |query: &Waiting| (query.owner, query.lane.filter(|_| self.holder(query).is_some()));
        self.waiting.iter().all(|query| {
            let in_line = |other: &Waiting| !other.throttled && place(other) == place(query);
            self.is_busy(query.owner) || self.waiting.iter().any(in_line)
        })
    }

    pub(super) fn finish(&mut self, number: u64) {
        let at = self.running.iter().position(|query| query.number == number).unwrap();
        let query = self.running.swap_remove(at);
        self.resume_owner(query.owner);
    }

    pub(super) fn release(&mut self, number: u64) {
        let at = self.running.iter().position(|query| query.number == number).unwrap();
        let query = self.running.swap_remove(at);
        let clock = self.clocks.entry(query.rank).or_default();
        clock.waiting += 1;
        let next = clock.next.entry(query.owner).or_default();
        *next = (*next).max(query.tag + 1);
        let (owner, lane) = (query.owner, query.lane);
        self.waiting.push(query);
        self.touch(lane);
        self.resume_owner(owner);
    }

    pub(super) fn hold(&mut self, lane: u8, worker: u64) -> bool {
        let was_open = !self.holders.contains_key(&lane);
        let held = *self.holders.entry(lane).or_insert(worker) == worker;
        self.touch(Some(lane));
        if was_open {
            self.on_lane_held(lane);
        }
        held
    }

    pub(super) fn release_lanes(&mut self, worker: u64, lane: Option<u8>) {
        let freed: Vec<u8> =
            self.holders.iter().filter(|(_, holder)| **holder == worker).map(|(lane, _)| *lane).collect();
        for name in freed.into_iter().filter(|name| lane.is_none_or(|lane| lane == *name)) {
            self.holders.remove(&name);
            self.touch(Some(name));
        }
    }
}
