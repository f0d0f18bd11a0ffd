//! Makes ids (UUIDs of version 7) that sort by the time of their making and cannot be guessed, without asking the kernel for
//! random bytes each time.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

/// Random bytes that are fetched at once; the kernel gives that many without being interrupted.
const FETCHED: usize = 256;
/// The largest number within a millisecond: 12 bits.
const MAX_NUMBER: u16 = 0xfff;

static MAKER: Mutex<Maker> = Mutex::new(Maker { millis: 0, number: 0, random: [0; FETCHED], left: 0 });

/// A new id.
pub(super) fn fresh() -> Uuid {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    MAKER.lock().make(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Debug)]
struct Maker {
    /// The time of the last id, and its number within that millisecond.
    millis: u64,
    number: u16,
    random: [u8; FETCHED],
    left: usize,
}

impl Maker {
    fn make(&mut self, now: u64) -> Uuid {
        if now > self.millis {
            self.millis = now;
            // Not from zero, so that an id does not tell how busy the server is.
            self.number = u16::from_be_bytes(self.random()) & (MAX_NUMBER >> 1);
        } else if self.number < MAX_NUMBER {
            self.number += 1;
        } else {
            // More in a millisecond than there are numbers, or a clock that was set back: the ids run ahead of it.
            self.millis += 1;
            self.number = 0;
        }
        let mut bytes = [0; 10];
        bytes[..2].copy_from_slice(&self.number.to_be_bytes());
        bytes[2..].copy_from_slice(&self.random::<8>());
        Builder::from_unix_timestamp_millis(self.millis, &bytes).into_uuid()
    }

    fn random<const N: usize>(&mut self) -> [u8; N] {
        if self.left < N {
            let fetched = getrandom(&mut self.random, GetRandomFlags::empty());
            self.left = fetched.expect("every kernel that this runs on has random bytes");
        }
        let bytes = &mut self.random[self.left - N..self.left];
        self.left -= N;
        let mut taken = [0; N];
        // What was given out is not kept: no id is told by what is in memory later.
        taken.swap_with_slice(bytes);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_sort_by_the_time_of_their_making_and_are_of_version_7() {
        let mut maker = Maker { millis: 0, number: 0, random: [0; FETCHED], left: 0 };
        // Many in a millisecond, and a clock that is set back in between.
        let times = [5_000, 5_000, 4_999, 5_001].iter().flat_map(|millis| vec![*millis; 3_000]);
        let ids: Vec<Uuid> = times.map(|millis| maker.make(millis)).collect();
        assert!(ids.is_sorted() && ids.iter().collect::<HashSet<_>>().len() == ids.len());
        assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
        let (seconds, nanos) = ids[0].get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (5, 0));
    }

    #[test]
    fn ids_differ_in_what_cannot_be_guessed() {
        let ends: HashSet<u64> =
            (0..1_000).map(|_| u64::from_be_bytes(fresh().as_bytes()[8..].try_into().unwrap())).collect();
        assert_eq!(ends.len(), 1_000);
    }
}
