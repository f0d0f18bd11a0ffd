//! Connections and HTTP/2: accepts sockets, bounds their number, and serves a tower service on each.

mod connection;
mod limiter;
mod listener;
mod server;

pub use limiter::{ConnectionEntry, ConnectionLimiter, OpenCall, Slot};
pub use listener::{Acceptor, Listener};
pub use server::serve;
