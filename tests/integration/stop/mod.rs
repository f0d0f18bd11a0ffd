//! Drain and stop, of single workers, of pools and of the server.

mod drain;
mod server;
