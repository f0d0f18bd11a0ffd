//! When a worker has done its work and is to be replaced by a new one.

use std::time::Duration;

use crate::{config::KindConfig, model::DeathCause};

/// The limits of one worker's life. They lie up to a tenth below those of its kind, by chance, so that workers that
/// started together are not replaced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wear {
    queries: Option<u64>,
    age: Option<Duration>,
    rss: Option<u64>,
}

impl Wear {
    /// `percent` says how much of the tenth is taken off.
    pub(super) fn new(kind: &KindConfig, percent: u32) -> Self {
        // Few queries are counted exactly.
        let queries = kind.max_queries.map(|max| max.get() - max.get() / 10 * u64::from(percent) / 100);
        let age = kind.max_age.map(|age| age.saturating_sub(age / 10 * percent / 100));
        Self { queries, age, rss: kind.memory_soft }
    }

    /// Why it is to be replaced, if it is. A query counts from when it was given to the worker, so that the
    /// replacement can be there when it ends.
    pub(super) fn due(&self, queries: u64, age: Duration, rss: Option<u64>) -> Option<DeathCause> {
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
    use std::{num::NonZeroU64, path::PathBuf};

    use super::*;
    use crate::config::{Config, Overrides, Source};

    fn kind() -> KindConfig {
        let text = "[kinds.k]\ncommand = [\"x\"]\nmax_queries = 1000\nmax_age = \"100m\"\nmemory_soft = \"1MiB\"\n";
        let source = Source::Text { name: "test".to_owned(), text: text.to_owned(), base_dir: PathBuf::new() };
        Config::load(source, [], &Overrides::default()).unwrap().kinds.remove(0)
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_worker_is_due_after_its_queries_its_age_or_for_its_size() {
        let wear = Wear::new(&kind(), 0);
        assert_eq!(wear.due(999, MINUTE * 99, Some(1 << 20)), None);
        assert_eq!(wear.due(1000, MINUTE, None), Some(DeathCause::RecycledQueries));
        assert_eq!(wear.due(1, MINUTE * 100, None), Some(DeathCause::RecycledAge));
        assert_eq!(wear.due(1, MINUTE, Some((1 << 20) + 1)), Some(DeathCause::RecycledMemory));
    }

    #[test]
    fn chance_takes_off_up_to_a_tenth_and_never_adds() {
        for percent in 0..=100 {
            let wear = Wear::new(&kind(), percent);
            assert_eq!(wear.due(899, MINUTE * 89, None), None, "{percent}");
            assert_eq!(wear.due(1000, MINUTE, None), Some(DeathCause::RecycledQueries));
            assert_eq!(wear.due(0, MINUTE * 100, None), Some(DeathCause::RecycledAge));
        }
        assert_eq!(Wear::new(&kind(), 100).due(900, MINUTE, None), Some(DeathCause::RecycledQueries));
        assert_eq!(Wear::new(&kind(), 100).due(0, MINUTE * 90, None), Some(DeathCause::RecycledAge));
        let few = KindConfig { max_queries: NonZeroU64::new(7), ..kind() };
        assert_eq!(Wear::new(&few, 100).due(6, MINUTE, None), None, "few are counted exactly");
    }
}
