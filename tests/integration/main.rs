//! The tests that start the real server with real workers and talk to it as a client would.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a failed test says where; metrics are small whole numbers; a table of cases may be long"
)]

mod architecture;

mod admin_cli;
mod affinity;
mod arguments;
mod balance;
mod bench;
mod capabilities;
mod chaos;
mod cli;
mod cli_dead;
mod confinement;
mod connections;
mod drain;
mod eviction;
mod examples;
mod export;
mod failed_loads;
mod failures;
mod harness;
mod http;
mod keys;
mod lifecycle;
mod load;
mod malformed;
mod matrix;
mod memory;
mod metrics;
mod neighbours;
mod operate;
mod pool_events;
mod queries;
mod queue;
mod races;
mod recovery;
mod recycling;
mod reflection;
mod reload;
mod reload_kinds;
mod rotation;
mod routing;
mod rules;
mod security;
mod sizing;
mod slow_readers;
mod standby;
mod stop;
mod streaming;
mod tracing;
