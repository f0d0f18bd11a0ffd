//! The two independent axes of a pool: its lifecycle, which is a machine, and its occupancy, which is a count.

use super::{named_enum, states::states};

states! {
    /// Phase in the life of the whole pool.
    pub enum PoolLifecycle as "pool" {
        /// The first workers are being started.
        Initializing => "initializing",
        /// Queries are taken.
        Ready => "ready",
        /// No new query is taken; the running ones end.
        Draining => "draining",
        /// Every worker is gone.
        ShutDown => "shut_down",
    }
    allowed {
        // A stop during start drains what has started so far instead of waiting for the rest.
        Initializing => Ready | Draining,
        // There is no way straight to ShutDown: even a forced stop drains, for no time at all.
        Ready        => Draining,
        // Only ShutDown is for good.
        Draining     => Ready | ShutDown,
    }
}

named_enum! {
    /// Fill level of the pool. It is computed from the worker count on demand and stored nowhere, so it cannot drift from the truth.
    pub enum Occupancy {
        /// No worker at all.
        Idle => "idle",
        /// Some workers, and room for another.
        Active => "active",
        /// A new worker needs another's place.
        AtCapacity => "at_capacity",
    }
}

impl Occupancy {
    /// A pool with no room at all is at capacity even when empty: nothing can be spawned. A pool
    /// above its maximum, as after a reload that lowered it, is at capacity too.
    #[must_use]
    pub const fn of(workers: usize, max_workers: usize) -> Self {
        if workers >= max_workers {
            Self::AtCapacity
        } else if workers == 0 {
            Self::Idle
        } else {
            Self::Active
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Occupancy::{Active, AtCapacity, Idle};
    use super::{Occupancy, PoolLifecycle};
    use crate::state::matrix::assert_transitions;

    #[test]
    fn pool_transitions_are_as_drawn() {
        assert_transitions::<PoolLifecycle>(
            "
                          initializing ready draining shut_down
            initializing       .         x      x         .
            ready              .         .      x         .
            draining           .         x      .         x
            shut_down          .         .      .         .
            ",
        );
    }

    #[test]
    fn occupancy_follows_the_worker_count() {
        let at_most_three = [0, 1, 2, 3].map(|workers| Occupancy::of(workers, 3));
        assert_eq!(at_most_three, [Idle, Active, Active, AtCapacity]);
    }

    #[test]
    fn pool_for_one_worker_is_never_in_between() {
        assert_eq!(Occupancy::of(0, 1), Idle);
        assert_eq!(Occupancy::of(1, 1), AtCapacity);
    }

    #[test]
    fn pool_above_its_maximum_is_at_capacity() {
        assert_eq!(Occupancy::of(5, 3), AtCapacity);
    }

    #[test]
    fn empty_pool_without_room_is_at_capacity() {
        assert_eq!(Occupancy::of(0, 0), AtCapacity);
    }

    #[test]
    fn occupancy_prints_in_snake_case() {
        assert_eq!([Idle, Active, AtCapacity].map(|level| level.to_string()), ["idle", "active", "at_capacity"]);
    }
}
