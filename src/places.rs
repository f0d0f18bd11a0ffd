//! A bounded number of places for connections. When all are taken, whoever came first and has not settled makes room.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

const NEW: u8 = 0;
const SETTLED: u8 = 1;
const ASKED_TO_LEAVE: u8 = 2;

#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    max: usize,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    /// In the order of their coming. Some may have settled, or left.
    new: VecDeque<Weak<Guest>>,
    /// Whoever was asked last. While it is still here, nobody else is asked.
    asked: Weak<Guest>,
}

/// One who has a place.
#[derive(Debug)]
pub struct Guest {
    standing: AtomicU8,
    leave: CancellationToken,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    pub guest: Arc<Guest>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let max = max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { free: Arc::new(Semaphore::new(max)), max, guests: Mutex::default() })
    }

    /// A place that is free now.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        self.free.clone().try_acquire_owned().ok().map(|permit| self.seat(permit))
    }

    /// Waits for a place, and asks one who has not settled to make room.
    pub async fn take(self: Arc<Self>) -> Place {
        if let Some(place) = self.try_take() {
            return place;
        }
        self.make_room();
        let permit = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.seat(permit)
    }

    fn seat(&self, permit: OwnedSemaphorePermit) -> Place {
        let guest = Arc::new(Guest { standing: AtomicU8::new(NEW), leave: CancellationToken::new() });
        let mut guests = self.guests.lock();
        if guests.new.len() > self.max.saturating_mul(2) {
            guests.new.retain(|guest| guest.upgrade().is_some_and(|guest| guest.standing.load(SeqCst) == NEW));
        }
        guests.new.push_back(Arc::downgrade(&guest));
        Place { guest, _permit: permit }
    }

    fn make_room(&self) {
        let mut guests = self.guests.lock();
        if guests.asked.strong_count() > 0 {
            return;
        }
        while let Some(guest) = guests.new.pop_front() {
            if guest.upgrade().is_some_and(|guest| guest.ask_to_leave()) {
                guests.asked = guest;
                return;
            }
        }
    }
}

impl Guest {
    /// From now on it is not asked to make room. `false` if it was already.
    pub fn settle(&self) -> bool {
        self.standing.compare_exchange(NEW, SETTLED, SeqCst, SeqCst) != Err(ASKED_TO_LEAVE)
    }

    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.standing.load(SeqCst) == SETTLED
    }

    fn ask_to_leave(&self) -> bool {
        let asked = self.standing.compare_exchange(NEW, ASKED_TO_LEAVE, SeqCst, SeqCst).is_ok();
        if asked {
            self.leave.cancel();
        }
        asked
    }

    /// Resolves when it is to make room.
    pub fn asked_to_leave(&self) -> WaitForCancellationFutureOwned {
        self.leave.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn was_asked(place: &Place) -> bool {
        place.guest.leave.is_cancelled()
    }

    #[tokio::test]
    async fn who_came_first_and_has_not_settled_makes_room() {
        let places = Places::new(3);
        let mut taken: Vec<Place> = std::iter::from_fn(|| places.try_take()).collect();
        assert_eq!(taken.len(), 3);
        assert!(taken[0].guest.settle());
        let waiting = tokio::spawn(places.clone().take());
        while !was_asked(&taken[1]) {
            tokio::task::yield_now().await;
        }
        assert!(!taken[1].guest.settle(), "it is too late for that");
        assert!(!was_asked(&taken[0]) && !was_asked(&taken[2]));
        // Asked again before it left, nobody else is asked.
        let again = timeout(Duration::from_millis(20), places.clone().take());
        assert!(again.await.is_err());
        assert!(!was_asked(&taken[2]));
        taken.remove(1);
        let newcomer = waiting.await.unwrap();
        assert!(places.try_take().is_none());
        drop((taken, newcomer));
    }

    #[tokio::test]
    async fn those_who_settled_stay() {
        let places = Places::new(2);
        let taken = [places.try_take().unwrap(), places.try_take().unwrap()];
        assert!(taken.iter().all(|place| place.guest.settle() && place.guest.settle()));
        assert!(timeout(Duration::from_millis(20), places.clone().take()).await.is_err());
        assert!(!taken.iter().any(was_asked));
        drop(taken);
        assert!(places.try_take().is_some());
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let places = Places::new(2);
        for _ in 0..1_000 {
            drop(places.try_take());
        }
        assert!(places.guests.lock().new.len() <= 6);
    }
}
