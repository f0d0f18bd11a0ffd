//! Connections and HTTP/2: accepts sockets, bounds their number, and serves a tower service on each.

mod connection;
mod limiter;
mod listener;
mod server;
mod tls;
mod write_pause;

pub use limiter::{ConnectionEntry, ConnectionLimiter, OpenCall, Slot};
pub use listener::{Acceptor, Listener, bind_tcp};
pub use server::serve;
pub use tls::{MaybeTlsStream, accept_tls};
