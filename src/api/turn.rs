//! How long the calls of one connection may go on before other tasks have their turn: they share a task, which is not to keep
//! a processor for as long as hundreds of them have something to do.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use pin_project_lite::pin_project;

/// Long beside what it takes to end a turn and begin the next; short beside what anyone would notice.
const TURN: Duration = Duration::from_micros(200);

/// The turns of a connection's task.
#[derive(Debug)]
pub(super) struct Turns {
    first: Instant,
    /// When this turn is over, in microseconds since the first began. Only its own task changes it.
    over_at: AtomicU64,
}

pin_project! {
    /// A call that shares turns with others.
    pub(super) struct Sharing<F> {
        #[pin]
        call: F,
        turns: Arc<Turns>,
    }
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { first: Instant::now(), over_at: AtomicU64::new(0) })
    }

    pub(super) fn begin(&self) {
        self.over_at.store(micros(self.first.elapsed() + TURN), Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        micros(self.first.elapsed()) >= self.over_at.load(Relaxed)
    }

    pub(super) fn share<F>(self: &Arc<Self>, call: F) -> Sharing<F> {
        Sharing { call, turns: self.clone() }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl<F: Future> Future for Sharing<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if this.turns.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.call.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn calls_go_on_until_the_turn_is_over() {
        let turns = Turns::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut goes_on = || Pin::new(&mut turns.share(std::future::ready(()))).poll(&mut context).is_ready();
        turns.over_at.store(u64::MAX, Relaxed);
        assert!(goes_on() && goes_on() && !turns.is_over());
        turns.begin();
        let begun = Instant::now();
        while !turns.is_over() {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        assert!(!goes_on() && begun.elapsed() >= TURN / 2);
    }
}
