//! The stop ladder: ask through the protocol, then SIGTERM, then SIGKILL, each with its own grace.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::timeout;
use tracing::{Level, enabled, trace};

use crate::{
    model::{Exit, StopStage},
    protocol::PoolFrame,
};

use super::{driver::Driver, end_reason::StopMethod};

impl Driver {
    /// Makes the process end, and returns its exit and the stage that it took.
    pub(super) async fn stop_process(&mut self, method: StopMethod) -> (Exit, StopStage) {
        let stage = self.escalate(method).await;
        let Some(process) = &mut self.process else { return (Exit::Unknown, stage) };
        // Even if the worker itself has ended: its children in the group must not outlive it.
        (process.kill_and_reap().await, stage)
    }

    async fn escalate(&mut self, method: StopMethod) -> StopStage {
        let kind = self.worker.kind.clone();
        match method {
            StopMethod::None => return StopStage::CancelFrame,
            StopMethod::Sigkill => return StopStage::Sigkill,
            StopMethod::Sigterm => {}
            StopMethod::ShutdownFrame => {
                let grace_ms = u64::try_from(kind.cancel_grace.as_millis()).unwrap_or(u64::MAX);
                self.send(&PoolFrame::Shutdown { graceful: true, grace_ms: Some(grace_ms) });
                if self.exits_within(kind.cancel_grace).await {
                    return StopStage::CancelFrame;
                }
            }
        }
        // With SIGTERM and SIGKILL in a row it would be chance which of them the worker dies of.
        if self.worker.is_kill_requested() {
            return StopStage::Sigkill;
        }
        if let Some(process) = &self.process {
            process.terminate();
        }
        if self.exits_within(kind.term_grace).await { StopStage::Sigterm } else { StopStage::Sigkill }
    }

    /// Waits for the process to exit. The connection is served meanwhile: a worker that cannot get rid of its last
    /// output, or does not get our frames, might not end.
    async fn exits_within(&mut self, grace: Duration) -> bool {
        let Some(process) = &self.process else { return true };
        let exit = async {
            match (self.worker.outbox(), &mut self.connection) {
                (Some(outbox), Some(connection)) => tokio::select! {
                    () = process.wait_for_exit() => {}
                    ((), ()) = async { tokio::join!(outbox.flush(), connection.discard()) } => {
                        process.wait_for_exit().await;
                    }
                },
                _ => process.wait_for_exit().await,
            }
        };
        tokio::select! {
            outcome = timeout(grace, exit) => outcome.is_ok(),
            () = self.worker.wait_for_kill_request() => false,
        }
    }

    pub(super) fn send(&self, frame: &PoolFrame<'_>) {
        let Some(outbox) = self.worker.outbox() else { return };
        let mut line = BytesMut::new();
        frame.encode(&mut line);
        if enabled!(Level::TRACE) {
            let worker = self.worker.id.0;
            self.span().in_scope(|| trace!(worker, frame = frame.type_name(), "frame to the worker"));
        }
        // The reader of the connection finds out if it is broken.
        let _ = outbox.send(&line);
    }
}
