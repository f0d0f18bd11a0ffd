//! Holds the connections of clients that do harm: they are not read any more and closed a little later, so that whoever
//! comes again as soon as it is thrown out comes less often.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::warn;

use crate::places::Guest;

use super::frames::Harm;

/// Long beside what a connection costs to open and to throw out; short for a client that meant no harm.
const HOLD: Duration = Duration::from_secs(1);

/// How often the log says that someone is held, while there are such.
const WARN_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Tarpit {
    closing: CancellationToken,
    warned: Mutex<Option<Instant>>,
}

/// The time of a connection that is held.
#[derive(Debug)]
pub(super) struct Hold {
    timer: Pin<Box<Sleep>>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Tarpit {
    /// When `closing` is cancelled nobody is held any longer.
    pub(super) fn new(closing: CancellationToken) -> Arc<Self> {
        Arc::new(Self { closing, warned: Mutex::default() })
    }

    /// Who is held is the first to make room for others.
    pub(super) fn hold(&self, guest: &Arc<Guest>, peer: Option<SocketAddr>, harm: Harm) -> Hold {
        guest.goes_first();
        self.warn(peer, harm);
        Hold { timer: Box::pin(sleep(HOLD)), closing: Box::pin(self.closing.clone().cancelled_owned()) }
    }

    fn warn(&self, peer: Option<SocketAddr>, harm: Harm) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            let peer = peer.map_or_else(|| "a Unix socket".to_owned(), |peer| peer.to_string());
            let what = match harm {
                Harm::Resets => "takes back more calls than it may before they are looked at",
                Harm::Metadata => "sends far more metadata than server.max_metadata_bytes",
            };
            warn!(peer, "a client {what}; such connections are not read any more and closed {HOLD:?} later");
        }
    }
}

impl Hold {
    pub(super) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let timer = self.timer.as_mut().poll(context);
        let closing = self.closing.as_mut().poll(context);
        Poll::Pending != timer || Poll::Pending != closing
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;
    use crate::places::Places;

    async fn ends(hold: &mut Hold) {
        poll_fn(|context| if hold.is_over(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    #[tokio::test]
    async fn a_hold_ends_with_its_time_or_with_the_server() {
        let (places, closing) = (Places::new(1), CancellationToken::new());
        let place = places.try_take().unwrap();
        let tarpit = Tarpit::new(closing.clone());
        let mut hold = tarpit.hold(&place.guest, None, Harm::Resets);
        assert!(timeout(HOLD / 2, ends(&mut hold)).await.is_err());
        assert!(timeout(HOLD, ends(&mut hold)).await.is_ok());
        let mut hold = tarpit.hold(&place.guest, None, Harm::Resets);
        closing.cancel();
        assert!(timeout(Duration::ZERO, ends(&mut hold)).await.is_ok());
    }
}
