//! Asks a client now and then whether it is still there.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

pub(super) struct Keepalive {
    pings: PingPong,
    interval: Duration,
    timeout: Duration,
    /// Whether the client was asked and has not answered.
    asked: bool,
    /// When it is asked next, or has not answered in time.
    timer: Pin<Box<Sleep>>,
}

impl Keepalive {
    pub(super) fn new(pings: PingPong, interval: Duration, timeout: Duration) -> Self {
        Self { pings, interval, timeout, asked: false, timer: Box::pin(sleep(interval)) }
    }

    /// Ready when the client has not answered in time.
    pub(super) fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.asked {
                match self.pings.poll_pong(context) {
                    Poll::Ready(Ok(_)) => self.set(false, self.interval),
                    // The connection is about to end for another reason.
                    Poll::Ready(Err(_)) => return Poll::Pending,
                    Poll::Pending => return self.timer.as_mut().poll(context),
                }
            } else {
                ready!(self.timer.as_mut().poll(context));
                // It fails only if the connection ends, or if one is under way, which is then waited for.
                let _ = self.pings.send_ping(Ping::opaque());
                self.set(true, self.timeout);
            }
        }
    }

    fn set(&mut self, asked: bool, wait: Duration) {
        self.asked = asked;
        self.timer.as_mut().reset(Instant::now() + wait);
    }
}
