//! Keys of `[results]`: the event log that each query keeps for its readers.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::super::numbers::{ANY_TIME, Integer, KIB, MAX_COUNTED, Size, TIB, Time};
use super::super::schema::keys;
use super::super::strings::{Choice, words};

keys! {
    /// The event log of each query.
    pub struct ResultsConfig, ResultsSettings {
        /// Events kept of one query, beside its final one. An answer streamed word by word is far shorter; the output
        /// of a worker that floods is not.
        max_events: NonZeroUsize = Integer(1..=MAX_COUNTED), Default(100_000), NeedsRestart;
        /// Bytes kept of one query's events. Sixteen of the largest messages, so that one query cannot take the
        /// server's memory.
        max_bytes: u64 = Size(KIB..=TIB), Default("64MiB"), NeedsRestart;
        /// Time after the end of a query in which its events can be read: enough for a client to restart and read the
        /// rest.
        retention: Duration = Time(ANY_TIME), Default("10m"), NeedsRestart;
        /// Ended queries kept at once; the one that ended first is removed first, even before its retention is over.
        /// It bounds memory under many short queries: at 17 a second retention alone would keep as many.
        max_ended: NonZeroUsize = Integer(1..=MAX_COUNTED), Default(10_000), NeedsRestart;
        /// Bytes kept of all ended queries, dead letters not counted: their payloads and events. The one that ended
        /// first is removed first, even before its retention is over; one that has not ended never is. Without it,
        /// max_ended of the largest would be 640 GiB.
        max_total_bytes: u64 = Size(KIB..=TIB), Default("1GiB"), NeedsRestart;
        /// Reaction to a query's log that is full, by max_events or max_bytes, if its readers have not caught up within
        /// max_stall. "gap" drops the oldest events, and readers that have not read them get a gap event instead.
        /// "stall" makes the worker wait for as long as a reader is attached, and is like gap when none is. "fail" ends
        /// the query in an error. A gap by default, because then a slow reader harms only itself: the query still ends,
        /// and its worker is free for the next.
        overflow: Overflow = Choice, Default("gap"), NeedsRestart;
        /// Time that a worker waits for slow readers before that; "0s" for none. Long enough for a reader to connect
        /// again, and short in comparison with most queries.
        max_stall: Duration = Time(ANY_TIME), Default("5s"), NeedsRestart;
    }
}

words! {
    /// Reaction to a query's log that is full and whose readers have not caught up in time.
    pub enum Overflow {
        /// The oldest events are dropped, and a gap event says so.
        Gap = "gap",
        /// The worker waits for as long as a reader is attached; without one, as `Gap`.
        Stall = "stall",
        /// The query ends in an error.
        Fail = "fail",
    }
}
