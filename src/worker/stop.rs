//! The stop ladder: ask through the protocol, then SIGTERM, then SIGKILL, each with its own patience.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::timeout;
use tracing::{Level, enabled, trace};

use crate::{
    model::{Exit, StopStage},
    protocol::PoolFrame,
};

use super::{driver::Driver, end::Farewell};

impl Driver {
    /// Makes the process end, whatever it takes, and says what it took.
    pub(super) async fn stop_process(&mut self, farewell: Farewell) -> (Exit, StopStage) {
        let stage = self.climb(farewell).await;
        let Some(process) = &mut self.process else { return (Exit::Unknown, stage) };
        // Always, even if the worker itself has ended: its children in the group must not outlive it.
        (process.kill_and_reap().await, stage)
    }

    async fn climb(&mut self, farewell: Farewell) -> StopStage {
        let kind = self.worker.kind.clone();
        match farewell {
            Farewell::None => return StopStage::CancelFrame,
            Farewell::Sigkill => return StopStage::Sigkill,
            Farewell::ShutdownFrame | Farewell::Sigterm => {}
        }
        if farewell == Farewell::ShutdownFrame {
            self.send(&PoolFrame::Shutdown { graceful: true, grace_ms: Some(millis(kind.cancel_grace)) });
            if self.ended_within(kind.cancel_grace).await {
                return StopStage::CancelFrame;
            }
        }
        // Two signals in a row would leave it to chance which of them the worker dies of.
        if self.worker.is_to_be_killed() {
            return StopStage::Sigkill;
        }
        if let Some(process) = &self.process {
            process.terminate();
        }
        if self.ended_within(kind.term_grace).await { StopStage::Sigterm } else { StopStage::Sigkill }
    }

    /// Waits for the process to end. The connection is served meanwhile: a worker that cannot get rid of its last
    /// words, or does not get ours, might not end.
    async fn ended_within(&mut self, patience: Duration) -> bool {
        let Some(process) = &self.process else { return true };
        let ended = async {
            match (self.worker.outbox(), &mut self.connection) {
                (Some(outbox), Some(connection)) => tokio::select! {
                    () = process.ended() => {}
                    ((), ()) = async { tokio::join!(outbox.flush(), connection.discard()) } => process.ended().await,
                },
                _ => process.ended().await,
            }
        };
        tokio::select! {
            outcome = timeout(patience, ended) => outcome.is_ok(),
            () = self.worker.killed() => false,
        }
    }

    pub(super) fn send(&self, frame: &PoolFrame<'_>) {
        if let Some(outbox) = self.worker.outbox() {
            let mut line = BytesMut::new();
            frame.encode(&mut line);
            let worker = self.worker.id.0;
            if enabled!(Level::TRACE) {
                self.span().in_scope(|| trace!(worker, frame = frame.type_name(), "frame to the worker"));
            }
            // A broken connection is for its reader to find.
            let _ = outbox.send(&line);
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
