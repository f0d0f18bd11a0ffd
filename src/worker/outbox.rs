//! The writing half of the connection to a worker: frames are written straight to the socket, and only what does not fit
//! waits for the driver.

use std::{io, sync::Arc};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::net::unix::OwnedWriteHalf;

#[derive(Debug)]
pub(super) struct Outbox {
    stream: Arc<OwnedWriteHalf>,
    /// Bounded by the protocol: one query at a time, and control frames of a few bytes.
    unsent: Mutex<BytesMut>,
}

impl Outbox {
    pub(super) fn new(stream: Arc<OwnedWriteHalf>) -> Self {
        Self { stream, unsent: Mutex::default() }
    }

    /// Sends whole frames, in the order of the calls. On an error the connection is closed and not a byte was taken. The
    /// caller wakes the driver if something is left to send.
    pub(super) fn send(&self, frames: &[u8]) -> io::Result<()> {
        let mut unsent = self.unsent.lock();
        let written = match unsent.is_empty().then(|| self.stream.try_write(frames)) {
            Some(Ok(written)) => written,
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Some(Err(_)) | None => 0,
        };
        if written < frames.len() {
            unsent.extend_from_slice(&frames[written..]);
        }
        Ok(())
    }

    /// True while something that did not fit waits.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.lock().is_empty()
    }

    /// Sends what did not fit. Cancel safe. Never resolves on a broken connection, which its reader finds.
    pub(super) async fn flush(&self) {
        while self.has_unsent() {
            if self.stream.writable().await.is_err() || self.flush_some().is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn flush_some(&self) -> io::Result<()> {
        let mut unsent = self.unsent.lock();
        match self.stream.try_write(&unsent) {
            Ok(written) => unsent.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if unsent.is_empty() {
            // A large query's buffer is not kept for the worker's whole life.
            *unsent = BytesMut::new();
        }
        Ok(())
    }
}
