//! Bounds the number of open connections. When all slots are taken, a connection that never had a call is closed, or the one
//! that has been idle for longest.

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

/// Flags of a connection's state; the bits below them count its open calls.
const CLOSED: usize = 1 << (usize::BITS - 1);
const LEAVING: usize = CLOSED >> 1;
const ACTIVE: usize = LEAVING >> 1;

/// Time without a call after which an active connection counts as idle. Shorter pauses between calls are normal.
const IDLE_THRESHOLD: Duration = Duration::from_secs(1);
/// Interval at which a waiting connection looks again for one to close.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// One slot in this many is for connections without a call: up to that share they displace idle ones, beyond it each other.
/// Clients that only connect therefore displace few that made calls, and idle clients never lock out new ones.
const SLOTS_PER_NEW_CONNECTION: usize = 8;

/// Hands out a fixed number of connection slots.
#[derive(Debug)]
pub struct ConnectionLimiter {
    free: Arc<Semaphore>,
    max: usize,
    shared: Arc<LimiterState>,
    table: Mutex<ConnectionTable>,
    draining: CancellationToken,
}

/// State that the connections update themselves.
#[derive(Debug)]
struct LimiterState {
    started: Instant,
    /// Connections that have not had a call yet.
    inactive: AtomicUsize,
}

/// Connections in order of arrival; some may be closed already.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// Connections that had no call when last checked.
    new: VecDeque<Weak<ConnectionEntry>>,
    all: Vec<Weak<ConnectionEntry>>,
    /// The connection that was last asked to leave. While it is open, no other is asked.
    leaving: Weak<ConnectionEntry>,
}

/// One open connection, shared by the limiter and the calls.
#[derive(Debug)]
pub struct ConnectionEntry {
    state: AtomicUsize,
    /// End of its last call, in milliseconds since the limiter was made.
    idle_since: AtomicU64,
    leave: CancellationToken,
    shared: Arc<LimiterState>,
}

/// A call that is open until this is dropped.
#[derive(Debug)]
pub struct OpenCall(Arc<ConnectionEntry>);

/// A slot that is taken until this is dropped.
#[derive(Debug)]
pub struct Slot {
    pub entry: Arc<ConnectionEntry>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    /// When `draining` is cancelled, every connection is asked to leave.
    #[must_use]
    pub fn new(max: usize, draining: CancellationToken) -> Arc<Self> {
        let max = max.min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(LimiterState { started: Instant::now(), inactive: AtomicUsize::new(0) });
        Arc::new(Self { free: Arc::new(Semaphore::new(max)), max, shared, table: Mutex::default(), draining })
    }

    /// A slot, if one is free now.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Slot> {
        self.free.clone().try_acquire_owned().ok().map(|permit| self.register(permit))
    }

    /// Waits for a slot, asking other connections to make room.
    pub async fn acquire(self: Arc<Self>) -> Slot {
        if let Some(slot) = self.try_acquire() {
            return slot;
        }
        let mut permit = pin!(self.free.clone().acquire_owned());
        loop {
            self.make_room();
            if let Ok(permit) = timeout(RETRY_INTERVAL, permit.as_mut()).await {
                return self.register(permit.expect("the semaphore is never closed"));
            }
        }
    }

    fn register(&self, permit: OwnedSemaphorePermit) -> Slot {
        self.shared.inactive.fetch_add(1, SeqCst);
        let entry = Arc::new(ConnectionEntry {
            state: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.shared.now()),
            leave: self.draining.child_token(),
            shared: self.shared.clone(),
        });
        let mut table = self.table.lock();
        if table.all.len() > self.max.saturating_mul(2) {
            table.all.retain(|entry| entry.strong_count() > 0);
            table.new.retain(|entry| entry.upgrade().is_some_and(|entry| !entry.is_active()));
        }
        table.all.push(Arc::downgrade(&entry));
        table.new.push_back(Arc::downgrade(&entry));
        Slot { entry, _permit: permit }
    }

    fn make_room(&self) {
        let mut table = self.table.lock();
        if table.leaving.upgrade().is_some_and(|asked| !asked.is_closed()) {
            return;
        }
        let idle_before = self.shared.now().saturating_sub(millis(IDLE_THRESHOLD));
        let new_first = self.shared.inactive.load(SeqCst) >= (self.max / SLOTS_PER_NEW_CONNECTION).max(1);
        let asked = if new_first {
            table.ask_oldest_new().or_else(|| table.ask_idlest(idle_before))
        } else {
            table.ask_idlest(idle_before).or_else(|| table.ask_oldest_new())
        };
        table.leaving = asked.as_ref().map(Arc::downgrade).unwrap_or_default();
    }
}

impl LimiterState {
    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ConnectionTable {
    /// Asks the oldest connection without a call to leave, and drops the closed and active ones before it.
    fn ask_oldest_new(&mut self) -> Option<Arc<ConnectionEntry>> {
        let mut oldest_first = std::iter::from_fn(|| self.new.pop_front());
        oldest_first.find_map(|entry| entry.upgrade().filter(|entry| entry.ask_to_leave(|state| state & ACTIVE == 0)))
    }

    /// Asks the connection that has been idle for longest to leave, if its last call ended by `idle_before`.
    fn ask_idlest(&self, idle_before: u64) -> Option<Arc<ConnectionEntry>> {
        let idle = self.all.iter().filter_map(Weak::upgrade).filter(|entry| entry.state.load(SeqCst) == ACTIVE);
        let idlest = idle.min_by_key(|entry| entry.idle_since.load(SeqCst))?;
        let is_idle = idlest.idle_since.load(SeqCst) <= idle_before;
        (is_idle && idlest.ask_to_leave(|state| state == ACTIVE)).then_some(idlest)
    }
}

impl ConnectionEntry {
    /// Records that a call was admitted: from now on the connection is closed only if it is idle. False if it was asked to
    /// leave before.
    pub fn mark_active(&self) -> bool {
        let mut before = self.state.load(SeqCst);
        if before & ACTIVE == 0 {
            before = self.state.fetch_or(ACTIVE, SeqCst);
            if before & ACTIVE == 0 {
                self.shared.inactive.fetch_sub(1, SeqCst);
            }
        }
        before & LEAVING == 0
    }

    /// Counts a call as open until the returned guard is dropped.
    #[must_use]
    pub fn open_call(self: Arc<Self>) -> OpenCall {
        self.state.fetch_add(1, SeqCst);
        OpenCall(self)
    }

    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.load(SeqCst) & ACTIVE != 0
    }

    fn is_closed(&self) -> bool {
        self.state.load(SeqCst) & CLOSED != 0
    }

    /// True if the connection was asked to make room for another.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state.load(SeqCst) & LEAVING != 0
    }

    fn ask_to_leave(&self, may_be_asked: impl Fn(usize) -> bool) -> bool {
        let leaving =
            |state: usize| (state & (LEAVING | CLOSED) == 0 && may_be_asked(state)).then_some(state | LEAVING);
        let asked = self.state.fetch_update(SeqCst, SeqCst, leaving).is_ok();
        if asked {
            self.leave.cancel();
        }
        asked
    }

    /// Resolves when the connection must make room ([`Self::is_leaving`]), or when the server drains.
    pub fn wait_for_leave_request(&self) -> WaitForCancellationFutureOwned {
        self.leave.clone().cancelled_owned()
    }
}

impl Drop for Slot {
    /// Marks the connection as closed before its slot is free: others may hold its entry for a moment longer.
    fn drop(&mut self) {
        self.entry.state.fetch_or(CLOSED, SeqCst);
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        if !self.is_active() {
            self.shared.inactive.fetch_sub(1, SeqCst);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.shared.now(), SeqCst);
        self.0.state.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn limiter_of(max: usize) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(max, CancellationToken::new())
    }

    fn was_asked(slot: &Slot) -> bool {
        slot.entry.leave.is_cancelled()
    }

    fn fill(limiter: &ConnectionLimiter) -> Vec<Slot> {
        std::iter::from_fn(|| limiter.try_acquire()).collect()
    }

    /// True if a connection that waits this long gets a slot.
    async fn gets_one(limiter: &Arc<ConnectionLimiter>, patience: Duration) -> bool {
        timeout(patience, limiter.clone().acquire()).await.is_ok()
    }

    #[tokio::test]
    async fn oldest_connection_without_a_call_makes_room() {
        let limiter = limiter_of(3);
        let mut taken = fill(&limiter);
        assert_eq!(taken.len(), 3);
        assert!(taken[0].entry.mark_active());
        let waiting = tokio::spawn(limiter.clone().acquire());
        while !was_asked(&taken[1]) {
            tokio::task::yield_now().await;
        }
        assert!(!taken[1].entry.mark_active(), "it is too late for that");
        assert!(!was_asked(&taken[0]) && !was_asked(&taken[2]));
        // While it is open, no other is asked.
        assert!(!gets_one(&limiter, 2 * RETRY_INTERVAL).await);
        assert!(!was_asked(&taken[2]));
        taken.remove(1);
        let new = waiting.await.unwrap();
        assert!(limiter.try_acquire().is_none());
        drop((taken, new));
    }

    #[tokio::test]
    async fn closed_connection_is_not_waited_for() {
        let limiter = limiter_of(1);
        for _ in 0..3 {
            let slot = limiter.try_acquire().expect("it is free");
            // A call may outlive its connection for a moment, and keeps the entry.
            let entry = slot.entry.clone();
            let waiting = tokio::spawn(limiter.clone().acquire());
            entry.wait_for_leave_request().await;
            drop(slot);
            let next = waiting.await.unwrap();
            limiter.make_room();
            assert!(was_asked(&next), "a closed connection holds nobody up");
            drop((next, entry));
        }
    }

    #[tokio::test]
    async fn idlest_connection_makes_room_and_one_with_a_call_does_not() {
        let limiter = limiter_of(3);
        let mut taken = fill(&limiter);
        let mut calls: Vec<OpenCall> = taken.iter().map(|slot| slot.entry.clone().open_call()).collect();
        assert!(taken.iter().all(|slot| slot.entry.mark_active() && slot.entry.mark_active()));
        assert!(!gets_one(&limiter, 2 * RETRY_INTERVAL).await);
        assert!(!taken.iter().any(was_asked));
        let waiting = tokio::spawn(limiter.clone().acquire());
        calls.remove(1);
        sleep(IDLE_THRESHOLD / 2).await;
        calls.remove(0);
        assert!(!taken.iter().any(was_asked), "a pause is not idleness");
        sleep(IDLE_THRESHOLD).await;
        assert_eq!(taken.iter().map(was_asked).collect::<Vec<_>>(), [false, true, false]);
        taken.remove(1);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn new_connections_displace_a_share_of_the_idle_and_then_each_other() {
        let limiter = limiter_of(16);
        let mut taken = fill(&limiter);
        assert!(taken.iter().all(|slot| slot.entry.mark_active()));
        sleep(IDLE_THRESHOLD).await;
        let new = ten_connect(&limiter, &mut taken).await;
        let active = taken.iter().filter(|slot| slot.entry.is_active()).count();
        assert_eq!((active, new.len()), (14, 2));
    }

    /// Ten connect one after another, and whichever is asked leaves. The rest of the ten.
    async fn ten_connect(limiter: &Arc<ConnectionLimiter>, taken: &mut Vec<Slot>) -> Vec<Slot> {
        let mut came: Vec<Slot> = Vec::new();
        for _ in 0..10 {
            let waiting = tokio::spawn(limiter.clone().acquire());
            while !taken.iter().chain(&came).any(was_asked) {
                sleep(RETRY_INTERVAL).await;
            }
            taken.retain(|slot| !was_asked(slot));
            came.retain(|slot| !was_asked(slot));
            came.push(waiting.await.unwrap());
        }
        came
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let limiter = limiter_of(2);
        for _ in 0..1_000 {
            drop(limiter.try_acquire().unwrap());
        }
        let table = limiter.table.lock();
        assert!(table.new.len() <= 6 && table.all.len() <= 6);
        assert_eq!(limiter.shared.inactive.load(SeqCst), 0);
    }
}
