//! The generated messages and services of `proto/remuda/v1`.
#![allow(
    clippy::pedantic,
    clippy::large_enum_variant,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    reason = "generated code"
)]

tonic::include_proto!("remuda.v1");

/// All of it as descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/remuda.bin"));

/// The service traits of this server: in their streams an event is an `EventMessage`, encoded straight from the log.
pub(crate) mod services {
    include!(concat!(env!("OUT_DIR"), "/services/remuda.v1.rs"));
}
