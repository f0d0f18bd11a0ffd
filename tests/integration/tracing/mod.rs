//! The trace of a query, in the log and at a collector.

mod export;
mod spans;
