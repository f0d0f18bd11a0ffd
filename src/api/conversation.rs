//! A client's connection: its frames, its calls and their answers, all in one task.
//!
//! A call is not a task of its own: what it has to send would have to wake the connection's task each time, and queries are
//! so short that this cost more than they do.

use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use h2::{
    RecvStream,
    server::{self, Builder, SendResponse},
};
use http::Request;
use tokio::task::yield_now;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::debug;

use crate::config::ServerConfig;

use super::{
    bell::Bell,
    call::{Api, answer},
    incoming::Connection,
    keepalive::Keepalive,
    turn::Turns,
};

/// Calls that a client may take back while they wait to be begun; with one more the connection is closed. They have been
/// looked at by then, or `frames` would have held them: a client may stop all of its calls at once.
const MAX_PENDING_RESETS: usize = 1024;
/// Calls that may break the rules of HTTP/2 on one connection before it is closed.
const MAX_LOCAL_RESETS: usize = 1024;
/// How much a client may send before it is read, in one call and in all: large requests come in few steps.
const WINDOW: u32 = 1 << 20;
/// How much of an answer waits within the connection: enough for one write, since the kernel has what is on its way. With more,
/// whoever asks for much and reads nothing costs more and gains nobody anything.
const SEND_BUFFER: usize = 64 * 1024;

/// How many calls are begun before the turn is looked at.
const CROWD: usize = 32;

/// How often the parts may wake each other before other tasks have their turn.
const ROUNDS: usize = 16;

/// The parts that wake the task.
const FRAMES: u8 = 1;
const CALLS: u8 = 2;
const SILENCE: u8 = 4;
const CLOSING: u8 = 8;

/// How connections are served.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    http2: Builder,
    keepalive_interval: Duration,
    keepalive_timeout: Duration,
}

struct Conversation<B, C> {
    http2: server::Connection<Connection, Bytes>,
    /// Begins a call.
    begin: B,
    calls: FuturesUnordered<C>,
    turns: Arc<Turns>,
    keepalive: Option<Keepalive>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    bell: Arc<Bell>,
    wakers: Wakers,
}

struct Wakers {
    frames: Waker,
    calls: Waker,
    silence: Waker,
    closing: Waker,
}

impl Manner {
    pub(super) fn new(limits: &ServerConfig) -> Self {
        let mut http2 = Builder::new();
        http2
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(limits.max_metadata_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.max_concurrent_streams.get())
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(Some(MAX_LOCAL_RESETS));
        Self { http2, keepalive_interval: limits.keepalive_interval, keepalive_timeout: limits.keepalive_timeout }
    }
}

/// Serves a connection until its client leaves, or until `closing` is cancelled and all its calls have ended.
pub(super) async fn converse(mut connection: Connection, manner: Manner, api: Arc<Api>, closing: CancellationToken) {
    // Whoever says nothing costs next to nothing.
    let greeted = tokio::select! {
        greeted = connection.greeting() => greeted,
        () = closing.cancelled() => return,
    };
    match greeted {
        Ok(()) => Box::pin(listen(connection, manner, api, closing)).await,
        Err(error) => debug!(%error, "a connection ended before its first byte"),
    }
}

async fn listen(connection: Connection, manner: Manner, api: Arc<Api>, closing: CancellationToken) {
    let guest = connection.guest().clone();
    let greeted = tokio::select! {
        greeted = manner.http2.handshake(connection) => greeted,
        () = closing.cancelled() => return,
    };
    let mut http2 = match greeted {
        Ok(http2) => http2,
        Err(error) => return debug!(%error, "a connection ended before its first call"),
    };
    let pings = http2.ping_pong();
    let keepalive = pings.map(|pings| Keepalive::new(pings, manner.keepalive_interval, manner.keepalive_timeout));
    let bell = Bell::new(FRAMES | CALLS | SILENCE | CLOSING);
    let wakers = Wakers {
        frames: bell.rope(FRAMES),
        calls: bell.rope(CALLS),
        silence: bell.rope(SILENCE),
        closing: bell.rope(CLOSING),
    };
    // A call that panics ends alone: its stream is reset when what it held is dropped.
    let turns = Turns::new();
    let shared = turns.clone();
    let begin = |request, respond| {
        let answering = answer(api.clone(), guest.clone(), request, respond);
        AssertUnwindSafe(shared.share(answering)).catch_unwind()
    };
    let closing = Box::pin(closing.cancelled_owned());
    let mut conversation =
        Conversation { http2, begin, calls: FuturesUnordered::new(), turns, keepalive, closing, bell, wakers };
    poll_fn(|context| conversation.poll(context)).await;
}

impl<B, C> Conversation<B, C>
where
    B: FnMut(Request<RecvStream>, SendResponse<Bytes>) -> C,
    C: Future,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut rung = self.bell.answer(context.waker());
        self.turns.begin();
        for _ in 0..ROUNDS {
            if rung & (SILENCE | CLOSING) != 0 && self.look_up(rung).is_ready() {
                return Poll::Ready(());
            }
            if rung & CALLS != 0 {
                self.go_on_with_calls();
            }
            if rung & FRAMES != 0 && self.exchange_frames().is_ready() {
                return Poll::Ready(());
            }
            if self.turns.is_over() {
                rung = 0;
                break;
            }
            match self.bell.next() {
                // Other calls may have something to send by then, which goes out in the same write.
                Some(FRAMES) if rung & CALLS != 0 => {
                    rung = FRAMES;
                    break;
                }
                Some(next) => rung = next,
                None => return Poll::Pending,
            }
        }
        self.bell.pause(rung);
        // This wakes the task again, but only once the runtime has looked for what has come from outside.
        pin!(yield_now()).poll(context)
    }

    /// Looks at what rarely happens. Ready if the client is gone.
    fn look_up(&mut self, rung: u8) -> Poll<()> {
        if rung & CLOSING != 0 && self.closing.as_mut().poll(&mut Context::from_waker(&self.wakers.closing)).is_ready()
        {
            self.http2.graceful_shutdown();
            self.wakers.frames.wake_by_ref();
        }
        if rung & SILENCE != 0
            && let Some(keepalive) = &mut self.keepalive
            && keepalive.poll_silence(&mut Context::from_waker(&self.wakers.silence)).is_ready()
        {
            debug!("a client did not answer a ping; its connection is closed");
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn go_on_with_calls(&mut self) {
        let mut context = Context::from_waker(&self.wakers.calls);
        while let Poll::Ready(Some(_)) = self.calls.poll_next_unpin(&mut context) {}
    }

    /// Reads and writes what can be, and begins the calls that have come. Ready if there will be no more.
    fn exchange_frames(&mut self) -> Poll<()> {
        let mut context = Context::from_waker(&self.wakers.frames);
        let mut begun = 0_usize;
        loop {
            match ready!(self.http2.poll_accept(&mut context)) {
                Some(Ok((request, respond))) => {
                    self.calls.push((self.begin)(request, respond));
                    self.wakers.calls.wake_by_ref();
                    begun += 1;
                    if begun.is_multiple_of(CROWD) && self.turns.is_over() {
                        // There may be more of them.
                        self.wakers.frames.wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Some(Err(error)) => {
                    debug!(%error, "a connection failed");
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
    }
}
