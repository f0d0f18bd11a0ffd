//! Where a query stands in its kind's queue, kept in the query itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a query stands. A rank is what it is served by before all else; 0 is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Place {
    Nowhere,
    InLine {
        rank: u64,
    },
    /// Its owner runs as many queries as it may.
    Aside {
        rank: u64,
    },
}

/// A [`Place`] in one word. It is read and written under the queue's lock only, so it needs no order of its own: an atomic
/// because queries are shared.
#[derive(Debug, Default)]
pub(in super::super) struct Spot(AtomicU64);

const IN_LINE: u64 = 1 << 63;
const ASIDE: u64 = 1 << 62;

impl Spot {
    pub(super) fn get(&self) -> Place {
        let word = self.0.load(Relaxed);
        let rank = word & !(IN_LINE | ASIDE);
        match (word & IN_LINE != 0, word & ASIDE != 0) {
            (true, _) => Place::InLine { rank },
            (false, true) => Place::Aside { rank },
            (false, false) => Place::Nowhere,
        }
    }

    pub(super) fn set(&self, place: Place) {
        let word = match place {
            Place::Nowhere => 0,
            Place::InLine { rank } => IN_LINE | rank,
            Place::Aside { rank } => ASIDE | rank,
        };
        self.0.store(word, Relaxed);
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.0.load(Relaxed) & IN_LINE != 0
    }

    pub(super) fn is_nowhere(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_as_it_was_set() {
        let spot = Spot::default();
        assert!(spot.is_nowhere());
        for rank in [0, 1, u64::from(u32::MAX) + (1 << 40)] {
            for place in [Place::InLine { rank }, Place::Aside { rank }, Place::Nowhere] {
                spot.set(place);
                assert_eq!(spot.get(), place);
                assert_eq!(spot.is_in_line(), matches!(place, Place::InLine { .. }));
                assert_eq!(spot.is_nowhere(), place == Place::Nowhere);
            }
        }
    }
}
