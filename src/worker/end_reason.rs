//! The reason why a worker ends, decided before its exit status is known.

use std::{io, time::Duration};

use bytesize::ByteSize;

use crate::{
    model::{DeathCause, Exit},
    protocol::ProtocolError,
};

use super::sandbox::{LAUNCH_FAILED, LaunchFailure};

/// Time for a process to exit after it closed its connection; then it counts as alive but disconnected.
pub(super) const EXIT_AFTER_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct EndReason {
    pub cause: DeathCause,
    pub detail: EndDetail,
    pub stop_method: StopMethod,
}

/// The part of the certificate beside cause and exit status.
#[derive(Debug)]
pub(super) enum EndDetail {
    /// The exit status says it all.
    Exit,
    /// The exit status, and the error in the worker's last output.
    ExitAnd(String),
    Text(String),
    ExitedBeforeConnecting,
    ExitedBeforeReady,
}

/// The first step taken to make the process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopMethod {
    /// Ask through the protocol.
    ShutdownFrame,
    Sigterm,
    Sigkill,
    /// It has ended already.
    None,
}

/// Each text follows the words "worker 7 (embed)".
impl EndReason {
    /// `last_error` is the error in the worker's last output, if there was one.
    pub(super) fn crash(last_error: Option<&ProtocolError>) -> Self {
        let detail = last_error.map_or(EndDetail::Exit, |error| EndDetail::ExitAnd(error.to_string()));
        Self { cause: DeathCause::Crash, detail, stop_method: StopMethod::None }
    }

    pub(super) fn stopped(cause: DeathCause, stop_method: StopMethod) -> Self {
        Self { cause, detail: EndDetail::Exit, stop_method }
    }

    /// `detail` tells how far it had come.
    pub(super) fn exited_early(detail: EndDetail) -> Self {
        Self { cause: DeathCause::StartFailed, detail, stop_method: StopMethod::None }
    }

    fn failed(cause: DeathCause, text: String) -> Self {
        Self { cause, detail: EndDetail::Text(text), stop_method: StopMethod::Sigterm }
    }

    pub(super) fn setup_failed(error: &io::Error) -> Self {
        Self::failed(DeathCause::StartFailed, format!("could not be started: {error}"))
    }

    pub(super) fn never_connected(limit: Duration) -> Self {
        let limit = limit.as_secs_f64();
        let text = format!("did not connect to the socket in REMUDA_SOCKET within {limit:.1} s (connect_timeout)");
        Self::failed(DeathCause::StartTimeout, text)
    }

    /// Only a process outside the worker's group tried to connect.
    pub(super) fn wrong_peer(pid: i32) -> Self {
        let text = format!(
            "did not connect itself: process {pid}, which is outside its process group, tried to and was refused; \
             a worker must not daemonize"
        );
        Self::failed(DeathCause::StartTimeout, text)
    }

    pub(super) fn never_ready(limit: Duration) -> Self {
        let limit = limit.as_secs_f64();
        let text = format!("connected but did not say ready within {limit:.1} s (start_timeout)");
        Self::failed(DeathCause::StartTimeout, text)
    }

    pub(super) fn disconnected() -> Self {
        Self::failed(DeathCause::Disconnected, "closed its connection but lived on".to_owned())
    }

    pub(super) fn protocol(error: &ProtocolError) -> Self {
        Self::failed(DeathCause::ProtocolError, format!("broke the protocol: {error}"))
    }

    pub(super) fn cancel_ignored(cause: DeathCause) -> Self {
        Self::failed(cause, "did not answer the cancel frame in time and was stopped".to_owned())
    }

    pub(super) fn silent(silence: Duration) -> Self {
        let text = format!("gave no sign of life for {:.1} s", silence.as_secs_f64());
        Self::failed(DeathCause::NoHeartbeat, text)
    }

    pub(super) fn too_large(used: u64, limit: u64) -> Self {
        let (used, limit) = (ByteSize(used).display().iec(), ByteSize(limit).display().iec());
        let text = format!("used {used} of memory, more than its kind's memory_limit of {limit}");
        Self::failed(DeathCause::OomLimit, text)
    }
}

impl EndDetail {
    /// The text that replaces the bare exit status in the certificate's summary.
    pub(super) fn text(self, exit: Exit, stderr: &str) -> Option<String> {
        let milestone = match self {
            Self::Exit => return None,
            Self::ExitAnd(text) => return Some(format!("{exit}; {text}")),
            Self::Text(text) => return Some(text),
            Self::ExitedBeforeConnecting => "connected",
            Self::ExitedBeforeReady => "was ready",
        };
        let report = LaunchFailure::find(stderr).filter(|_| exit == Exit::Code(LAUNCH_FAILED.into()));
        Some(match report {
            Some(report) => format!("could not be started: {report}"),
            None => format!("{exit} before it {milestone}"),
        })
    }
}
