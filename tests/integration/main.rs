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
mod arguments;
mod chaos;
mod cli;
mod cli_dead;
mod confinement;
mod examples;
mod failures;
mod harness;
mod http;
mod lifecycle;
mod load;
mod matrix;
mod neighbours;
mod queries;
mod races;
mod recovery;
mod reflection;
mod reload;
mod reload_kinds;
mod slow_readers;
mod streaming;
