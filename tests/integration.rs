//! The tests that start the real server with real workers and talk to it as a client would.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a failed test says where; metrics are small whole numbers; a table of cases may be long"
)]

mod harness;
mod integration {
    mod architecture;
    mod cli;
    mod connections;
    mod dispatch;
    mod matrix;
    mod metrics;
    mod pool;
    mod queries;
    mod reload;
    mod sandbox;
    mod security;
    mod stop;
    mod tracing;
    mod workers;
}
