//! The limits after which a worker is replaced by a new one.

use std::time::Duration;

use crate::{config::KindConfig, model::DeathCause};

/// The limits of one worker. They lie up to a tenth below those of its kind, at random, so that workers that started
/// together are not replaced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecycleLimits {
    queries: Option<u64>,
    age: Option<Duration>,
    rss: Option<u64>,
}

impl RecycleLimits {
    /// `jitter_percent` is the share of the tenth that is taken off.
    pub(super) fn new(kind: &KindConfig, jitter_percent: u32) -> Self {
        // Dividing first leaves limits below ten queries exact.
        let queries = kind.max_queries.map(|max| max.get() - max.get() / 10 * u64::from(jitter_percent) / 100);
        let age = kind.max_age.map(|age| age.saturating_sub(age / 10 * jitter_percent / 100));
        Self { queries, age, rss: kind.memory_soft }
    }

    /// The limit that is exceeded, if any. A query counts from its dispatch, so that the replacement can be ready when it
    /// ends.
    pub(super) fn exceeded(&self, queries: u64, age: Duration, rss: Option<u64>) -> Option<DeathCause> {
        if self.queries.is_some_and(|limit| queries >= limit) {
            return Some(DeathCause::RecycledQueries);
        }
        if self.age.is_some_and(|limit| age >= limit) {
            return Some(DeathCause::RecycledAge);
        }
        (self.rss? < rss?).then_some(DeathCause::RecycledMemory)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::{super::tests, *};

    fn kind() -> KindConfig {
        tests::kind("max_queries = 1000\nmax_age = \"100m\"\nmemory_soft = \"1MiB\"")
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn limits_apply_to_queries_age_and_memory() {
        let limits = RecycleLimits::new(&kind(), 0);
        assert_eq!(limits.exceeded(999, MINUTE * 99, Some(1 << 20)), None);
        assert_eq!(limits.exceeded(1000, MINUTE, None), Some(DeathCause::RecycledQueries));
        assert_eq!(limits.exceeded(1, MINUTE * 100, None), Some(DeathCause::RecycledAge));
        assert_eq!(limits.exceeded(1, MINUTE, Some((1 << 20) + 1)), Some(DeathCause::RecycledMemory));
    }

    #[test]
    fn jitter_takes_off_up_to_a_tenth_and_never_adds() {
        for percent in 0..=100 {
            let limits = RecycleLimits::new(&kind(), percent);
            assert_eq!(limits.exceeded(899, MINUTE * 89, None), None, "{percent}");
            assert_eq!(limits.exceeded(1000, MINUTE, None), Some(DeathCause::RecycledQueries));
            assert_eq!(limits.exceeded(0, MINUTE * 100, None), Some(DeathCause::RecycledAge));
        }
        let full = RecycleLimits::new(&kind(), 100);
        assert_eq!(full.exceeded(900, MINUTE, None), Some(DeathCause::RecycledQueries));
        assert_eq!(full.exceeded(0, MINUTE * 90, None), Some(DeathCause::RecycledAge));
        let few = KindConfig { max_queries: NonZeroU64::new(7), ..kind() };
        assert_eq!(RecycleLimits::new(&few, 100).exceeded(6, MINUTE, None), None, "few are counted exactly");
    }
}
