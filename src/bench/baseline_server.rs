//! The baseline in this process, on threads of its own.

use std::{io, net::TcpListener as StdListener};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tokio_util::sync::CancellationToken;

use super::BenchError;
use crate::client::Endpoint;

#[derive(Debug)]
pub(super) struct BaselineServer {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    pub endpoint: Endpoint,
}

impl BaselineServer {
    /// In the same kind of runtime as `serve`.
    pub(super) fn start() -> Result<Self, BenchError> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let runtime = Builder::new_multi_thread().thread_name("baseline").enable_all().build()?;
        runtime.spawn(async move {
            let served = super::serve_baseline(TcpListener::from_std(listener)?, CancellationToken::new()).await;
            served.map_err(io::Error::other)
        });
        let endpoint = address.parse().expect("a listener's address can be connected to");
        Ok(Self { runtime: Some(runtime), endpoint })
    }
}

impl Drop for BaselineServer {
    fn drop(&mut self) {
        // A runtime must not be waited for within another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
