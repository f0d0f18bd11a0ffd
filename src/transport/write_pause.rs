//! Lets all other tasks of a runtime thread run once before a connection writes.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;
use tokio::task::yield_now;

/// A pause until the runtime has run the tasks that are ready. Wake-ups of the connection's task, which every call with
/// something to send causes, do not shorten it.
///
/// Under load a query takes 0.30 writes with it and 0.82 without, also with a plain `yield_now`, which any wake-up cuts
/// short; queries/s are 0.48 instead of 0.42 of bare tonic's.
#[derive(Debug, Default)]
pub(super) struct WritePause {
    end: Arc<PauseEnd>,
    is_waiting: bool,
}

/// The runtime wakes this at the end of the pause.
#[derive(Debug, Default)]
struct PauseEnd {
    is_over: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl WritePause {
    /// Ready once for each pause, after other tasks have run.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.end.task.lock().get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
        if !self.is_waiting {
            self.is_waiting = true;
            self.end.is_over.store(false, SeqCst);
            let waker = Waker::from(self.end.clone());
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        }
        if !self.end.is_over.load(SeqCst) {
            return Poll::Pending;
        }
        self.is_waiting = false;
        Poll::Ready(())
    }
}

impl Wake for PauseEnd {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, SeqCst);
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task;

    use super::*;

    #[tokio::test]
    async fn tasks_that_are_ready_run_before_the_pause_is_over() {
        let others = Arc::new(AtomicBool::new(false));
        let ran = others.clone();
        let other = task::spawn(async move { ran.store(true, SeqCst) });
        let mut pause = WritePause::default();
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            // Something else wakes the task too, which does not shorten the pause.
            context.waker().wake_by_ref();
            pause.poll(context)
        })
        .await;
        assert!(others.load(SeqCst) && polls > 1, "{polls} polls");
        assert!(!pause.is_waiting, "the next pause is another one");
        other.await.unwrap();
    }
}
