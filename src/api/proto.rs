//! The generated messages and services of `proto/remuda/v1`.
#![allow(
    clippy::pedantic,
    clippy::large_enum_variant,
    missing_debug_implementations,
    unused_qualifications,
    reason = "generated code"
)]

tonic::include_proto!("remuda.v1");

/// All of it as descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/remuda.bin"));
