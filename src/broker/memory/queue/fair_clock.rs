//! Fair shares: the tags that let owners of one rank take turns (start-time fair queueing).
//!
//! Each query gets a tag when it joins: the next of its owner, or the virtual time if that is later. The smallest tag is
//! served first, and the virtual time is the tag that was served last. So an owner with a thousand queries and one with ten
//! take turns until the ten are done, and an owner that was away gets no credit for it.

use std::collections::{BTreeMap, HashMap};

/// Owners without a waiting query that are remembered, beside twice the number of waiting queries.
const IDLE_OWNERS_MAX: usize = 256;

/// A clock for each rank with waiting queries, and perhaps an empty one that is kept for the next query.
#[derive(Debug, Default)]
pub(super) struct FairClocks(BTreeMap<u64, FairClock>);

#[derive(Debug, Default)]
struct FairClock {
    /// The virtual time.
    now: u64,
    waiting: usize,
    owners: HashMap<Box<str>, OwnerShare>,
    /// Share of all queries without an owner.
    unowned: OwnerShare,
}

#[derive(Debug, Default)]
struct OwnerShare {
    next: u64,
    waiting: usize,
}

impl FairClocks {
    /// Adds a query to a rank and gives it its tag.
    pub(super) fn join(&mut self, rank: u64, owner: Option<&str>) -> u64 {
        let clock = self.0.entry(rank).or_default();
        let now = clock.now;
        let share = clock.share(owner);
        let tag = share.next.max(now);
        share.next = tag + 1;
        tag
    }

    /// Adds a query again, with the tag it had.
    pub(super) fn rejoin(&mut self, rank: u64, owner: Option<&str>, tag: u64) {
        let share = self.0.entry(rank).or_default().share(owner);
        share.next = share.next.max(tag + 1);
    }

    /// Advances the virtual time to a tag that is served, but not past `first`, the smallest tag that still waits.
    pub(super) fn serve(&mut self, rank: u64, tag: u64, first: Option<u64>) {
        if let Some(clock) = self.0.get_mut(&rank) {
            clock.now = clock.now.max(first.map_or(tag, |first| first.min(tag)));
        }
    }

    /// Removes a query from a rank.
    pub(super) fn leave(&mut self, rank: u64, owner: Option<&str>) {
        let Some(clock) = self.0.get_mut(&rank) else { return };
        clock.waiting -= 1;
        if clock.waiting > 0 {
            clock.leave(owner);
        } else if self.0.len() == 1 {
            // The only clock is kept: a queue that is mostly empty would allocate one for every query.
            self.0.values_mut().for_each(FairClock::reset);
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

impl FairClock {
    fn reset(&mut self) {
        if !self.owners.is_empty() {
            self.owners = HashMap::default();
        }
        (self.now, self.unowned) = (0, OwnerShare::default());
    }

    fn share(&mut self, owner: Option<&str>) -> &mut OwnerShare {
        self.waiting += 1;
        let share = match owner {
            None => &mut self.unowned,
            Some(owner) => {
                if !self.owners.contains_key(owner) {
                    self.compact();
                    self.owners.insert(owner.into(), OwnerShare::default());
                }
                self.owners.get_mut(owner).expect("inserted if it was missing")
            }
        };
        share.waiting += 1;
        share
    }

    fn leave(&mut self, owner: Option<&str>) {
        let Some(owner) = owner else {
            self.unowned.waiting -= 1;
            return;
        };
        let share = self.owners.get_mut(owner).expect("an owner with a waiting query is known");
        share.waiting -= 1;
        if share.waiting == 0 && share.next <= self.now {
            self.owners.remove(owner);
        }
        self.compact();
    }

    /// Drops owners without a waiting query when they are many: clients make owner names up. A dropped owner may get one
    /// turn too early.
    fn compact(&mut self) {
        if self.owners.len() > 2 * self.waiting + IDLE_OWNERS_MAX {
            self.owners.retain(|_, share| share.waiting > 0);
            self.owners.shrink_to(2 * self.owners.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns_and_each_owner_is_served_in_order() {
        let mut clocks = FairClocks::default();
        assert_eq!([0; 3].map(|_| clocks.join(0, Some("a"))), [0, 1, 2]);
        assert_eq!([0; 2].map(|_| clocks.join(0, Some("b"))), [0, 1]);
        assert_eq!([0; 2].map(|_| clocks.join(0, None)), [0, 1]);
        clocks.serve(0, 2, None);
        assert_eq!(clocks.join(0, Some("c")), 2, "who comes late starts where the others are");
        assert_eq!(clocks.join(1, Some("a")), 0, "each rank has its own clock");
    }

    #[test]
    fn idle_owners_are_dropped() {
        let mut clocks = FairClocks::default();
        clocks.join(0, None);
        for n in 0..100_000 {
            let owner = format!("owner {n}");
            clocks.join(0, Some(&owner));
            clocks.leave(0, Some(&owner));
        }
        assert!(clocks.owners() <= IDLE_OWNERS_MAX + 4, "{}", clocks.owners());
        clocks.leave(0, None);
        assert_eq!((clocks.0.len(), clocks.owners()), (1, 0));
    }
}
