//! The number of workers, their replacement, their memory, and what operators do to them.

mod events;
mod eviction;
mod failed_loads;
mod memory;
mod operate;
mod recycling;
mod sizing;
