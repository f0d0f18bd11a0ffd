//! Keys of `[queue]`: queries that wait for a worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::super::numbers::{Integer, KIB, MAX_COUNTED, MAX_LIVE, Or, SOME_TIME, Size, TIB, Time};
use super::super::schema::keys;

keys! {
    /// Queries that wait for a worker.
    pub struct QueueConfig, QueueSettings {
        /// Queries that wait at once; more are refused with RESOURCE_EXHAUSTED, except that one of a higher priority
        /// displaces the newest of the lowest. A bound on memory: with payloads of 1 KiB this is some 100 MiB.
        max_queries: NonZeroUsize = Integer(1..=MAX_COUNTED), Default(100_000), NeedsRestart;
        /// Bytes of all payloads that wait at once; a query that would exceed it is refused with RESOURCE_EXHAUSTED,
        /// unless it has a higher priority and can displace the newest of the lowest. max_queries alone would let as
        /// many of the largest payloads wait, 400 GiB. A query that waits alone may be of any size.
        max_bytes: u64 = Size(KIB..=TIB), Default("1GiB"), NeedsRestart;
        /// With a time like "30s", the priority of a waiting query improves by one each time that passes, at most up
        /// to 0, the highest; so one of low priority does not wait for ever behind others. Owners then share the
        /// workers fairly only among queries of about the same age. Off by default: priorities are strict.
        aging: Option<Duration> = Or("off", Time(SOME_TIME)), Default("off"), NeedsRestart;
        /// Queries of one owner that wait at once; more are refused with RESOURCE_EXHAUSTED. "none" for no limit but
        /// max_queries. None by default, because owners share the workers fairly anyway; set it if one of them could
        /// fill the queue.
        max_queries_per_owner: Option<NonZeroUsize> = Or("none", Integer(1..=MAX_COUNTED)),
            Default("none"), NeedsRestart;
        /// Queries of one owner that run at once; further ones wait, while those of other owners overtake them. "none"
        /// for no limit. None by default, so that no worker is idle while there is work.
        max_running_per_owner: Option<NonZeroUsize> = Or("none", Integer(1..=MAX_LIVE)), Default("none"), NeedsRestart;
    }
}
