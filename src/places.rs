//! A bounded number of places for connections. When all are taken, one who is unwelcome makes room, or one who never asked
//! for anything, or whoever has been idle for longest.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A guest's standing: these three, and the number of its open calls in the bits below.
const LEFT: usize = 1 << (usize::BITS - 1);
const LEAVING: usize = LEFT >> 1;
const SETTLED: usize = LEAVING >> 1;

/// For how long one who has settled must have had no open call before it is asked to leave: a pause between two calls is
/// not idleness.
const IDLE: Duration = Duration::from_secs(1);
/// How often someone who waits looks again for one who could make room.
const AGAIN: Duration = Duration::from_millis(100);
/// One place in so many is for newcomers: up to that share they push out the idle, beyond it each other. So those who only
/// come and say nothing never get the places of many who have settled, and those who settled never lock the door.
const NEWCOMERS: usize = 8;

#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    max: usize,
    house: Arc<House>,
    guests: Mutex<Guests>,
}

/// What all guests share.
#[derive(Debug)]
struct House {
    opened: Instant,
    /// Guests that have not settled.
    newcomers: AtomicUsize,
    /// Guests that make room before any other. Some may have left.
    unwelcome: Mutex<VecDeque<Weak<Guest>>>,
}

#[derive(Debug, Default)]
struct Guests {
    /// In the order of their coming. Some may have settled, or left.
    new: VecDeque<Weak<Guest>>,
    /// Some may have left.
    all: Vec<Weak<Guest>>,
    /// Whoever was asked last. While it is still here, nobody else is asked.
    asked: Weak<Guest>,
}

/// One who has a place.
#[derive(Debug)]
pub struct Guest {
    standing: AtomicUsize,
    /// When its last call ended, in milliseconds since the house opened.
    idle_since: AtomicU64,
    leave: CancellationToken,
    house: Arc<House>,
}

/// A call of a guest, until this is dropped.
#[derive(Debug)]
pub struct OpenCall(Arc<Guest>);

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
        let house =
            Arc::new(House { opened: Instant::now(), newcomers: AtomicUsize::new(0), unwelcome: Mutex::default() });
        Arc::new(Self { free: Arc::new(Semaphore::new(max)), max, house, guests: Mutex::default() })
    }

    /// A place that is free now.
    #[must_use]
    pub fn try_take(&self) -> Option<Place> {
        self.free.clone().try_acquire_owned().ok().map(|permit| self.seat(permit))
    }

    /// Waits for a place, and asks someone to make room.
    pub async fn take(self: Arc<Self>) -> Place {
        if let Some(place) = self.try_take() {
            return place;
        }
        let mut permit = pin!(self.free.clone().acquire_owned());
        loop {
            self.make_room();
            if let Ok(permit) = timeout(AGAIN, permit.as_mut()).await {
                return self.seat(permit.expect("the semaphore is never closed"));
            }
        }
    }

    fn seat(&self, permit: OwnedSemaphorePermit) -> Place {
        self.house.newcomers.fetch_add(1, SeqCst);
        let guest = Arc::new(Guest {
            standing: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.house.now()),
            leave: CancellationToken::new(),
            house: self.house.clone(),
        });
        let mut guests = self.guests.lock();
        if guests.all.len() > self.max.saturating_mul(2) {
            guests.all.retain(|guest| guest.strong_count() > 0);
            guests.new.retain(|guest| guest.upgrade().is_some_and(|guest| !guest.has_settled()));
        }
        guests.all.push(Arc::downgrade(&guest));
        guests.new.push_back(Arc::downgrade(&guest));
        Place { guest, _permit: permit }
    }

    fn make_room(&self) {
        let mut guests = self.guests.lock();
        if guests.asked.upgrade().is_some_and(|asked| !asked.has_left()) {
            return;
        }
        let before = self.house.now().saturating_sub(millis(IDLE));
        let newcomers_first = self.house.newcomers.load(SeqCst) >= (self.max / NEWCOMERS).max(1);
        let unwelcome = self.house.ask_first_unwelcome();
        let asked = if unwelcome.is_some() {
            unwelcome
        } else if newcomers_first {
            guests.ask_first_newcomer().or_else(|| guests.ask_idlest(before))
        } else {
            guests.ask_idlest(before).or_else(|| guests.ask_first_newcomer())
        };
        guests.asked = asked.as_ref().map(Arc::downgrade).unwrap_or_default();
    }
}

impl House {
    fn now(&self) -> u64 {
        millis(self.opened.elapsed())
    }

    fn ask_first_unwelcome(&self) -> Option<Arc<Guest>> {
        first_asked(&mut self.unwelcome.lock(), |_| true)
    }
}

/// Asks the first of these who may be asked and is still here. Those before are forgotten.
fn first_asked(guests: &mut VecDeque<Weak<Guest>>, may_be_asked: impl Fn(usize) -> bool) -> Option<Arc<Guest>> {
    let mut guests = std::iter::from_fn(|| guests.pop_front());
    guests.find_map(|guest| guest.upgrade().filter(|guest| guest.ask_to_leave(&may_be_asked)))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Guests {
    fn ask_first_newcomer(&mut self) -> Option<Arc<Guest>> {
        first_asked(&mut self.new, |standing| standing & SETTLED == 0)
    }

    /// Asks whoever has been without an open call for longest, if that was since `before`.
    fn ask_idlest(&self, before: u64) -> Option<Arc<Guest>> {
        let idle = self.all.iter().filter_map(Weak::upgrade).filter(|guest| guest.standing.load(SeqCst) == SETTLED);
        let idlest = idle.min_by_key(|guest| guest.idle_since.load(SeqCst))?;
        let long = idlest.idle_since.load(SeqCst) <= before;
        (long && idlest.ask_to_leave(|standing| standing == SETTLED)).then_some(idlest)
    }
}

impl Guest {
    /// From now on it is asked to make room only when it is idle. `false` if it was asked already.
    pub fn settle(&self) -> bool {
        let before = self.standing.fetch_or(SETTLED, SeqCst);
        if before & SETTLED == 0 {
            self.house.newcomers.fetch_sub(1, SeqCst);
        }
        before & LEAVING == 0
    }

    /// It has an open call for as long as this is kept.
    #[must_use]
    pub fn call(self: Arc<Self>) -> OpenCall {
        self.standing.fetch_add(1, SeqCst);
        OpenCall(self)
    }

    /// From now on it makes room before any other, whatever it does.
    pub fn goes_first(self: &Arc<Self>) {
        let mut unwelcome = self.house.unwelcome.lock();
        unwelcome.retain(|guest| guest.strong_count() > 0);
        unwelcome.push_back(Arc::downgrade(self));
    }

    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.standing.load(SeqCst) & SETTLED != 0
    }

    fn has_left(&self) -> bool {
        self.standing.load(SeqCst) & LEFT != 0
    }

    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.standing.load(SeqCst) & LEAVING != 0
    }

    fn ask_to_leave(&self, may_be_asked: impl Fn(usize) -> bool) -> bool {
        let leaving = |standing: usize| {
            (standing & (LEAVING | LEFT) == 0 && may_be_asked(standing)).then_some(standing | LEAVING)
        };
        let asked = self.standing.fetch_update(SeqCst, SeqCst, leaving).is_ok();
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

impl Drop for Place {
    /// Before the place is free: its guest may be known to others for a moment longer.
    fn drop(&mut self) {
        self.guest.standing.fetch_or(LEFT, SeqCst);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.has_settled() {
            self.house.newcomers.fetch_sub(1, SeqCst);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.house.now(), SeqCst);
        self.0.standing.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn was_asked(place: &Place) -> bool {
        place.guest.leave.is_cancelled()
    }

    fn fill(places: &Places) -> Vec<Place> {
        std::iter::from_fn(|| places.try_take()).collect()
    }

    /// Whether someone who waits this long gets a place.
    async fn gets_one(places: &Arc<Places>, patience: Duration) -> bool {
        timeout(patience, places.clone().take()).await.is_ok()
    }

    #[tokio::test]
    async fn who_came_first_and_has_not_settled_makes_room() {
        let places = Places::new(3);
        let mut taken = fill(&places);
        assert_eq!(taken.len(), 3);
        assert!(taken[0].guest.settle());
        let waiting = tokio::spawn(places.clone().take());
        while !was_asked(&taken[1]) {
            tokio::task::yield_now().await;
        }
        assert!(!taken[1].guest.settle(), "it is too late for that");
        assert!(!was_asked(&taken[0]) && !was_asked(&taken[2]));
        // Asked again before it left, nobody else is asked.
        assert!(!gets_one(&places, 2 * AGAIN).await);
        assert!(!was_asked(&taken[2]));
        taken.remove(1);
        let newcomer = waiting.await.unwrap();
        assert!(places.try_take().is_none());
        drop((taken, newcomer));
    }

    #[tokio::test]
    async fn who_has_left_is_not_waited_for() {
        let places = Places::new(1);
        for _ in 0..3 {
            let place = places.try_take().expect("it is free");
            // Its connection is gone, and something still knows it.
            let guest = place.guest.clone();
            let waiting = tokio::spawn(places.clone().take());
            guest.asked_to_leave().await;
            drop(place);
            let next = waiting.await.unwrap();
            places.make_room();
            assert!(was_asked(&next), "nobody waits for one who is gone");
            drop((next, guest));
        }
    }

    #[tokio::test]
    async fn who_has_been_idle_for_longest_makes_room_and_who_has_a_call_does_not() {
        let places = Places::new(3);
        let mut taken = fill(&places);
        let mut calls: Vec<OpenCall> = taken.iter().map(|place| place.guest.clone().call()).collect();
        assert!(taken.iter().all(|place| place.guest.settle() && place.guest.settle()));
        assert!(!gets_one(&places, 2 * AGAIN).await);
        assert!(!taken.iter().any(was_asked));
        let waiting = tokio::spawn(places.clone().take());
        calls.remove(1);
        sleep(IDLE / 2).await;
        calls.remove(0);
        assert!(!taken.iter().any(was_asked), "a pause is not idleness");
        sleep(IDLE).await;
        assert_eq!(taken.iter().map(was_asked).collect::<Vec<_>>(), [false, true, false]);
        taken.remove(1);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn newcomers_push_out_a_share_of_the_idle_and_then_each_other() {
        let places = Places::new(16);
        let mut taken = fill(&places);
        assert!(taken.iter().all(|place| place.guest.settle()));
        sleep(IDLE).await;
        let newcomers = ten_come(&places, &mut taken).await;
        let settled = taken.iter().filter(|place| place.guest.has_settled()).count();
        assert_eq!((settled, newcomers.len()), (14, 2));
    }

    /// Ten come one after another; who is asked leaves. Those of them that are left.
    async fn ten_come(places: &Arc<Places>, taken: &mut Vec<Place>) -> Vec<Place> {
        let mut came: Vec<Place> = Vec::new();
        for _ in 0..10 {
            let waiting = tokio::spawn(places.clone().take());
            while !taken.iter().chain(&came).any(was_asked) {
                sleep(AGAIN).await;
            }
            taken.retain(|place| !was_asked(place));
            came.retain(|place| !was_asked(place));
            came.push(waiting.await.unwrap());
        }
        came
    }

    #[tokio::test]
    async fn who_is_unwelcome_makes_room_before_all_others() {
        let places = Places::new(3);
        let taken = fill(&places);
        let _call = taken[2].guest.clone().call();
        assert!(taken[2].guest.settle());
        taken[2].guest.goes_first();
        assert!(!gets_one(&places, 2 * AGAIN).await);
        assert_eq!(taken.iter().map(was_asked).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let places = Places::new(2);
        for _ in 0..1_000 {
            places.try_take().unwrap().guest.goes_first();
        }
        assert_eq!(places.house.unwelcome.lock().len(), 1);
        let guests = places.guests.lock();
        assert!(guests.new.len() <= 6 && guests.all.len() <= 6);
        assert_eq!(places.house.newcomers.load(SeqCst), 0);
    }
}
