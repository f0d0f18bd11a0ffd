//! Keys of `[dead_letters]`: queries that ended in failure.

use std::time::Duration;

use super::super::numbers::{Integer, KIB, MAX_COUNTED, SOME_TIME, Size, TIB, Time};
use super::super::schema::keys;

keys! {
    /// Queries that ended in failure.
    pub struct DeadLettersConfig, DeadLettersSettings {
        /// Number that is kept; the oldest is removed first. 0 keeps none. A thousand is more than a person looks
        /// through, and with payloads of 1 KiB a few MiB.
        max: usize = Integer(0..=MAX_COUNTED), Default(1000), NeedsRestart;
        /// Bytes kept of all of them: their payloads, events and failures. The oldest is removed first; the newest
        /// stays, whatever its size.
        max_bytes: u64 = Size(KIB..=TIB), Default("256MiB"), NeedsRestart;
        /// Time for which each is kept. A week, so that a failure of a Friday night is still there when somebody looks.
        max_age: Duration = Time(SOME_TIME), Default("7days"), NeedsRestart;
    }
}
