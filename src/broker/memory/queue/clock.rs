//! Fair shares: the tags that let owners of one rank take turns (start-time fair queueing).
//!
//! Each query gets a tag when it joins: the next of its owner, or the virtual time if that is later. The smallest tag is
//! served first, and the virtual time is that of the last one served. So an owner with a thousand queries and one with ten
//! take turns until the ten are done, and an owner that was away gets no credit for it.

use std::collections::{BTreeMap, HashMap};

/// So many owners that have nothing waiting are remembered, besides as many as queries wait.
const REMEMBERED: usize = 256;

/// A clock for each rank that something waits in, and perhaps one more that is kept for the next query.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<u64, Clock>);

#[derive(Debug, Default)]
struct Clock {
    /// The virtual time.
    now: u64,
    waiting: usize,
    owners: HashMap<Box<str>, Share>,
    /// All queries without an owner are one owner's.
    nobody: Share,
}

#[derive(Debug, Default)]
struct Share {
    next: u64,
    waiting: usize,
}

impl Clocks {
    /// A query joins a rank.
    pub(super) fn join(&mut self, rank: u64, owner: Option<&str>) -> u64 {
        let clock = self.0.entry(rank).or_default();
        let now = clock.now;
        let share = clock.share(owner);
        let tag = share.next.max(now);
        share.next = tag + 1;
        tag
    }

    /// A query joins again, with the tag it had.
    pub(super) fn rejoin(&mut self, rank: u64, owner: Option<&str>, tag: u64) {
        let share = self.0.entry(rank).or_default().share(owner);
        share.next = share.next.max(tag + 1);
    }

    /// A query of this tag is served. The virtual time does not pass `first`, the smallest tag that still waits.
    pub(super) fn serve(&mut self, rank: u64, tag: u64, first: Option<u64>) {
        if let Some(clock) = self.0.get_mut(&rank) {
            clock.now = clock.now.max(first.map_or(tag, |first| first.min(tag)));
        }
    }

    /// A query no longer waits in a rank.
    pub(super) fn leave(&mut self, rank: u64, owner: Option<&str>) {
        let Some(clock) = self.0.get_mut(&rank) else { return };
        clock.waiting -= 1;
        if clock.waiting > 0 {
            clock.leave(owner);
        } else if self.0.len() == 1 {
            // The only clock stays: a queue that is mostly empty would make one for every query.
            self.0.values_mut().for_each(Clock::reset);
        } else {
            self.0.remove(&rank);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(super) fn owners(&self) -> usize {
        self.0.values().map(|clock| clock.owners.len()).sum()
    }
}

impl Clock {
    /// Nobody is in anybody's way: all start afresh.
    fn reset(&mut self) {
        if !self.owners.is_empty() {
            self.owners = HashMap::default();
        }
        (self.now, self.nobody) = (0, Share::default());
    }

    fn share(&mut self, owner: Option<&str>) -> &mut Share {
        self.waiting += 1;
        let share = match owner {
            None => &mut self.nobody,
            Some(owner) => {
                if !self.owners.contains_key(owner) {
                    self.forget_some();
                    self.owners.insert(owner.into(), Share::default());
                }
                self.owners.get_mut(owner).expect("inserted if it was missing")
            }
        };
        share.waiting += 1;
        share
    }

    fn leave(&mut self, owner: Option<&str>) {
        let Some(owner) = owner else {
            self.nobody.waiting -= 1;
            return;
        };
        let share = self.owners.get_mut(owner).expect("an owner with a waiting query is known");
        share.waiting -= 1;
        if share.waiting == 0 && share.next <= self.now {
            self.owners.remove(owner);
        }
        self.forget_some();
    }

    /// Clients make owners up. Those that have nothing waiting are forgotten when they are many, which lets each of them
    /// have one turn too early at most.
    fn forget_some(&mut self) {
        if self.owners.len() > 2 * self.waiting + REMEMBERED {
            self.owners.retain(|_, share| share.waiting > 0);
            self.owners.shrink_to(2 * self.owners.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns_and_one_alone_is_first_come_first_served() {
        let mut clocks = Clocks::default();
        assert_eq!([0; 3].map(|_| clocks.join(0, Some("a"))), [0, 1, 2]);
        assert_eq!([0; 2].map(|_| clocks.join(0, Some("b"))), [0, 1]);
        assert_eq!([0; 2].map(|_| clocks.join(0, None)), [0, 1]);
        clocks.serve(0, 2, None);
        assert_eq!(clocks.join(0, Some("c")), 2, "who comes late starts where the others are");
        assert_eq!(clocks.join(1, Some("a")), 0, "each rank has its own clock");
    }

    #[test]
    fn names_that_are_made_up_do_not_stay() {
        let mut clocks = Clocks::default();
        clocks.join(0, None);
        for n in 0..100_000 {
            let owner = format!("owner {n}");
            clocks.join(0, Some(&owner));
            clocks.leave(0, Some(&owner));
        }
        assert!(clocks.owners() <= REMEMBERED + 4, "{}", clocks.owners());
        clocks.leave(0, None);
        assert_eq!((clocks.0.len(), clocks.owners()), (1, 0));
    }
}
