//! Lets the parts of one task wake it each for itself: it looks only at those that have something to tell, and what one part
//! does to another while the task runs costs no second run.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU8,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Wake, Waker},
};

/// The task looks around; whoever rings meanwhile is seen before it rests.
const AWAKE: u8 = 1 << 7;
/// The task is about to look around again.
const PAUSED: u8 = 1 << 6;

/// Wakes one task, which must be the only one that ever answers it.
#[derive(Debug)]
pub(super) struct Bell {
    rung: AtomicU8,
    task: OnceLock<Waker>,
}

/// What a part of the task is woken by.
#[derive(Debug)]
struct Rope {
    bell: Arc<Bell>,
    part: u8,
}

impl Bell {
    /// At first all of `parts` have something to tell. The highest two bits are not for parts.
    pub(super) fn new(parts: u8) -> Arc<Self> {
        debug_assert_eq!(parts & (AWAKE | PAUSED), 0);
        Arc::new(Self { rung: AtomicU8::new(parts), task: OnceLock::new() })
    }

    /// The waker of one part.
    pub(super) fn rope(self: &Arc<Self>, part: u8) -> Waker {
        Waker::from(Arc::new(Rope { bell: self.clone(), part }))
    }

    /// The task runs. Which parts have something to tell?
    pub(super) fn answer(&self, task: &Waker) -> u8 {
        self.task.get_or_init(|| task.clone());
        self.rung.swap(AWAKE, AcqRel) & !(AWAKE | PAUSED)
    }

    /// Which parts have something to tell since it was asked last? With none the task rests.
    pub(super) fn next(&self) -> Option<u8> {
        if self.rung.compare_exchange(AWAKE, 0, AcqRel, Acquire).is_ok() {
            return None;
        }
        Some(self.rung.swap(AWAKE, AcqRel) & !AWAKE)
    }

    /// The task goes on later with these and all that have rung meanwhile. Whoever rings does not wake it until then: that is
    /// for the caller to see to.
    pub(super) fn pause(&self, left: u8) {
        self.rung.fetch_or(left | PAUSED, AcqRel);
        self.rung.fetch_and(!AWAKE, AcqRel);
    }
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If another part has rung, the task was woken then.
        if self.bell.rung.fetch_or(self.part, AcqRel) == 0
            && let Some(task) = self.bell.task.get()
        {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn the_task_is_woken_once_and_hears_of_all_who_rang() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(task.clone());
        let bell = Bell::new(0b111);
        let ropes = [bell.rope(1), bell.rope(2), bell.rope(4)];
        assert_eq!(bell.answer(&waker), 0b111);
        assert_eq!(bell.next(), None);
        ropes[0].wake_by_ref();
        ropes[2].wake_by_ref();
        ropes[2].wake_by_ref();
        assert_eq!(task.0.load(SeqCst), 1);
        assert_eq!(bell.answer(&waker), 0b101);
        assert_eq!(bell.next(), None);
        assert_eq!(task.0.load(SeqCst), 1);
    }

    #[test]
    fn who_rings_while_the_task_runs_is_heard_before_it_rests() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(task.clone());
        let bell = Bell::new(0);
        let rope = bell.rope(2);
        assert_eq!(bell.answer(&waker), 0);
        rope.wake_by_ref();
        assert_eq!((bell.next(), bell.next()), (Some(2), None));
        assert_eq!(task.0.load(SeqCst), 0);
        assert_eq!(bell.answer(&waker), 0);
        rope.wake_by_ref();
        bell.pause(4);
        rope.wake_by_ref();
        assert_eq!(task.0.load(SeqCst), 0);
        assert_eq!(bell.answer(&waker), 0b110);
    }
}
