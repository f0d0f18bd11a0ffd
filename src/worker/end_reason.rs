//! The reason why a worker ends, decided before its exit status is known.

use std::time::Duration;

use thiserror::Error;

use crate::{
    model::{DeathCause, Exit},
    protocol::ProtocolError,
};

use super::sandbox::{LAUNCH_FAILED, LaunchFailure, LaunchStage};

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
    /// It exited before it had come this far.
    ExitedBefore(StartMilestone),
    Start(StartFailure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartMilestone {
    Connected,
    Ready,
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

/// The reason why a worker did not become ready. Each text follows the words "worker 7 (embed)".
#[derive(Debug, Error)]
pub(super) enum StartFailure {
    #[error("could not be started: the command {program:?} was not found; check the kind's command, dir and PATH")]
    NotFound { program: String },
    #[error("could not be started: the interpreter named in the first line of {program:?} was not found")]
    NoInterpreter { program: String },
    #[error("could not be started: {program:?} is not executable ({message}); check its permissions and format")]
    NotExecutable { program: String, message: String },
    #[error("could not be started: cannot enter its directory: {message}; check the kind's dir")]
    Directory { message: String },
    #[error(
        "could not be started: cannot become its user: {message}; check the kind's user and that the server runs as root"
    )]
    User { message: String },
    #[error(
        "could not be started: cannot enter its group: {message}; check the kind's group and that the server runs as root"
    )]
    Group { message: String },
    #[error("could not be started: cannot limit it: {message}; check the kind's limits")]
    Limits { message: String },
    #[error("could not be started: cannot confine it with Landlock: {message}")]
    Landlock { message: String },
    #[error(
        "could not be started: {program:?} must not be executed ({message}); with Landlock, the program, its \
         interpreter and its libraries must be in what the kind's landlock_read lists"
    )]
    Confined { program: String, message: String },
    #[error("could not be started: {message}")]
    Setup { message: String },
    #[error("{exit} before it {}", .before.text())]
    ExitedEarly { exit: Exit, before: StartMilestone },
    #[error("did not connect to the socket in REMUDA_SOCKET within {:.1} s (connect_timeout)", .0.as_secs_f64())]
    NeverConnected(Duration),
    #[error("connected but did not say ready within {:.1} s (start_timeout)", .0.as_secs_f64())]
    NeverReady(Duration),
    #[error(
        "did not connect itself: process {pid}, which is outside its process group, tried to and was refused; \
         a worker must not daemonize"
    )]
    WrongPeer { pid: i32 },
}

impl StartMilestone {
    fn text(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Ready => "was ready",
        }
    }
}

impl StartFailure {
    fn from_launch(program: &str, failure: &LaunchFailure) -> Self {
        let message = failure.message.clone();
        let program = program.to_owned();
        match (failure.stage, failure.errno) {
            (LaunchStage::Interpreter, _) => Self::NoInterpreter { program },
            (LaunchStage::Execute, Some(libc::ENOENT)) => Self::NotFound { program },
            (LaunchStage::Execute, _) => Self::NotExecutable { program, message },
            (LaunchStage::Directory, _) => Self::Directory { message },
            (LaunchStage::User, _) => Self::User { message },
            (LaunchStage::Group, _) => Self::Group { message },
            (LaunchStage::Limits, _) => Self::Limits { message },
            (LaunchStage::Landlock, _) => Self::Landlock { message },
            (LaunchStage::Confined, _) => Self::Confined { program, message },
            (
                LaunchStage::Plan
                | LaunchStage::Parent
                | LaunchStage::Session
                | LaunchStage::Descriptors
                | LaunchStage::Privileges,
                _,
            ) => Self::Setup { message },
        }
    }
}

impl EndReason {
    /// `last_error` is the error in the worker's last output, if there was one.
    pub(super) fn crash(last_error: Option<&ProtocolError>) -> Self {
        let detail = last_error.map_or(EndDetail::Exit, |error| EndDetail::ExitAnd(error.to_string()));
        Self { cause: DeathCause::Crash, detail, stop_method: StopMethod::None }
    }

    pub(super) fn disconnected() -> Self {
        let detail = EndDetail::Text("closed its connection but lived on".to_owned());
        Self { cause: DeathCause::Disconnected, detail, stop_method: StopMethod::Sigterm }
    }

    pub(super) fn protocol(error: &ProtocolError) -> Self {
        let detail = EndDetail::Text(format!("broke the protocol: {error}"));
        Self { cause: DeathCause::ProtocolError, detail, stop_method: StopMethod::Sigterm }
    }

    pub(super) fn cancel_ignored(cause: DeathCause) -> Self {
        let detail = EndDetail::Text("did not answer the cancel frame in time and was stopped".to_owned());
        Self { cause, detail, stop_method: StopMethod::Sigterm }
    }

    pub(super) fn stopped(cause: DeathCause, stop_method: StopMethod) -> Self {
        Self { cause, detail: EndDetail::Exit, stop_method }
    }

    pub(super) fn silent(silence: Duration) -> Self {
        let detail = EndDetail::Text(format!("gave no sign of life for {:.1} s", silence.as_secs_f64()));
        Self { cause: DeathCause::NoHeartbeat, detail, stop_method: StopMethod::Sigterm }
    }

    pub(super) fn too_large(used: u64, limit: u64) -> Self {
        let (used, limit) = (bytesize::ByteSize(used).display().iec(), bytesize::ByteSize(limit).display().iec());
        let detail = EndDetail::Text(format!("used {used} of memory, more than its kind's memory_limit of {limit}"));
        Self { cause: DeathCause::OomLimit, detail, stop_method: StopMethod::Sigterm }
    }

    pub(super) fn exited_before(milestone: StartMilestone) -> Self {
        Self {
            cause: DeathCause::StartFailed,
            detail: EndDetail::ExitedBefore(milestone),
            stop_method: StopMethod::None,
        }
    }

    pub(super) fn start(cause: DeathCause, failure: StartFailure) -> Self {
        Self { cause, detail: EndDetail::Start(failure), stop_method: StopMethod::Sigterm }
    }
}

impl EndDetail {
    /// The text that replaces the bare exit status in the certificate's summary.
    pub(super) fn text(self, exit: Exit, stderr: &str, program: &str) -> Option<String> {
        match self {
            Self::Exit => None,
            Self::ExitAnd(text) => Some(format!("{exit}; {text}")),
            Self::Text(text) => Some(text),
            Self::Start(failure) => Some(failure.to_string()),
            Self::ExitedBefore(before) => {
                let report = LaunchFailure::find(stderr).filter(|_| exit == Exit::Code(LAUNCH_FAILED.into()));
                let failure = match report {
                    Some(report) => StartFailure::from_launch(program, &report),
                    None => StartFailure::ExitedEarly { exit, before },
                };
                Some(failure.to_string())
            }
        }
    }
}
