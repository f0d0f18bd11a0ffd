//! Keys of `[retry]`: errors that a worker reports as retryable.

use std::time::Duration;

use super::super::numbers::{Integer, SOME_TIME, Time, show_duration};
use super::super::reader::SectionReader;
use super::super::schema::keys;

keys! {
    /// Retries of a query whose worker reports a retryable error.
    pub struct RetryConfig, RetrySettings {
        /// Further runs of such a query, at most 100; 0 for none. Three, after pauses of 1, 2 and 4 seconds: that
        /// outlasts a brief failure of a service that the worker depends on, and a lasting fault is reported soon.
        attempts: u32 = Integer(0..=100), Default(3), Applied;
        /// The pause before the first of these runs, doubled before each further one: 1, 2, 4, 8 seconds. At most
        /// backoff_max, and lowered to it unless set. A second relieves an overloaded service, and a caller hardly
        /// notices it. Each pause is varied at random by a fixed share, which is not configurable, so that queries that
        /// failed together do not return together.
        backoff: Duration = Time(SOME_TIME), Default("1s"), Applied;
        /// The longest such pause. A minute, because a fault that lasts longer is not mended by waiting still longer,
        /// and without a limit the tenth pause would take more than 8 minutes.
        backoff_max: Duration = Time(SOME_TIME), Default("1m"), Applied;
    }
}

pub(in crate::config) fn read(section: &SectionReader<'_>) -> RetryConfig {
    let mut settings = RetrySettings::read(section);
    section.keep_order(&mut settings.backoff, &settings.backoff_max, show_duration);
    settings.into_config()
}
