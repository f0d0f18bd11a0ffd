//! The baseline in this process, on its own threads.

use std::net::TcpListener as StdListener;

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};

use super::BenchError;
use crate::client::Endpoint;

#[derive(Debug)]
pub(super) struct BaselineServer {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    pub endpoint: Endpoint,
}

impl BaselineServer {
    /// Uses the same kind of runtime as `serve`.
    pub(super) fn start() -> Result<Self, BenchError> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let runtime = Builder::new_multi_thread().thread_name("baseline").enable_all().build()?;
        runtime.spawn(async move { super::serve_baseline(TcpListener::from_std(listener)?).await });
        let endpoint = address.parse().expect("a listener's address can be connected to");
        Ok(Self { runtime: Some(runtime), endpoint })
    }
}

impl Drop for BaselineServer {
    fn drop(&mut self) {
        // A runtime must not be dropped inside another one: that would block it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
