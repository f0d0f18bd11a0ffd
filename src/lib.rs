//! Remuda: warm worker processes behind one gRPC endpoint.
//!
//! ARCHITECTURE.md describes how the parts fit together.

pub mod api;
pub mod bench;
pub mod broker;
pub mod cli;
pub mod client;
pub mod config;
pub mod http;
pub mod metrics;
pub mod model;
#[cfg(test)]
#[cfg(feature = "model-check")]
mod model_check;
pub mod pool;
pub mod protocol;
pub mod security;
pub mod server;
pub mod state;
mod sync;
mod system;
pub mod trace;
pub mod transport;
pub mod worker;
pub mod workers;
