//! A future that mostly is there at once, and then takes no allocation.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// What a trait gives whose users may have to wait, though hardly ever.
pub enum Soon<'a, T> {
    /// Here it is, until it is taken.
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Soon<'a, T> {
    pub fn now(value: T) -> Self {
        Self::Now(Some(value))
    }

    pub fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(Box::pin(future))
    }
}

/// A value is moved out, and a box does not move what is in it.
impl<T> Unpin for Soon<'_, T> {}

impl<T> Future for Soon<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Now(value) => Poll::Ready(value.take().expect("it is polled to its end once")),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Soon<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
        })
    }
}
