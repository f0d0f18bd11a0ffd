//! Translates between gRPC and the pool; decides nothing.

pub mod proto;
