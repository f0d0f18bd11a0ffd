//! Why a worker's life ends, before it is known how its process ended.

use std::time::Duration;

use thiserror::Error;

use crate::{
    model::{DeathCause, Exit},
    protocol::ProtocolError,
};

use super::sandbox::{LAUNCH_FAILED, LaunchFailure, LaunchStage};

/// The verdict that ends a worker's service.
#[derive(Debug)]
pub(super) struct End {
    pub cause: DeathCause,
    pub story: Story,
    pub farewell: Farewell,
}

/// What the certificate tells beside the exit status.
#[derive(Debug)]
pub(super) enum Story {
    /// The exit status says it all.
    Exit,
    /// The exit status, and what was wrong with the last thing it said.
    ExitAnd(String),
    Told(String),
    /// It exited before it had come this far.
    ExitedBefore(Milestone),
    Start(StartFailure),
}

/// How far a worker must come to be of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Milestone {
    Connected,
    Ready,
}

/// The first thing done to make the process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Ask politely, through the protocol.
    ShutdownFrame,
    Sigterm,
    Sigkill,
    /// It has ended already.
    None,
}

/// Why a worker did not become ready. Each text follows the words "worker 7 (embed)".
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
    #[error("{exit} before it {}", .before.words())]
    ExitedEarly { exit: Exit, before: Milestone },
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

impl Milestone {
    fn words(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Ready => "was ready",
        }
    }
}

impl StartFailure {
    /// What the launcher's report means.
    pub(super) fn from_launch(program: &str, failure: &LaunchFailure) -> Self {
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

impl End {
    /// `last_words` is what was wrong with the last thing it said, if anything was.
    pub(super) fn crash(last_words: Option<&ProtocolError>) -> Self {
        let story = last_words.map_or(Story::Exit, |error| Story::ExitAnd(error.to_string()));
        Self { cause: DeathCause::Crash, story, farewell: Farewell::None }
    }

    pub(super) fn disconnected() -> Self {
        let story = Story::Told("closed its connection but lived on".to_owned());
        Self { cause: DeathCause::Disconnected, story, farewell: Farewell::Sigterm }
    }

    pub(super) fn protocol(error: &ProtocolError) -> Self {
        let story = Story::Told(format!("broke the protocol: {error}"));
        Self { cause: DeathCause::ProtocolError, story, farewell: Farewell::Sigterm }
    }

    /// It held on to a query that it was told to let go of.
    pub(super) fn held_on(cause: DeathCause) -> Self {
        let story = Story::Told("did not answer the cancel frame in time and was stopped".to_owned());
        Self { cause, story, farewell: Farewell::Sigterm }
    }

    pub(super) fn stopped(cause: DeathCause, farewell: Farewell) -> Self {
        Self { cause, story: Story::Exit, farewell }
    }

    pub(super) fn lifeless(silence: Duration) -> Self {
        let story = Story::Told(format!("gave no sign of life for {:.1} s", silence.as_secs_f64()));
        Self { cause: DeathCause::NoHeartbeat, story, farewell: Farewell::Sigterm }
    }

    pub(super) fn too_large(used: u64, limit: u64) -> Self {
        let (used, limit) = (bytesize::ByteSize(used).display().iec(), bytesize::ByteSize(limit).display().iec());
        let story = Story::Told(format!("used {used} of memory, more than its kind's memory_limit of {limit}"));
        Self { cause: DeathCause::OomLimit, story, farewell: Farewell::Sigterm }
    }

    pub(super) fn exited_before(milestone: Milestone) -> Self {
        Self { cause: DeathCause::StartFailed, story: Story::ExitedBefore(milestone), farewell: Farewell::None }
    }

    pub(super) fn start(cause: DeathCause, failure: StartFailure) -> Self {
        Self { cause, story: Story::Start(failure), farewell: Farewell::Sigterm }
    }
}

impl Story {
    /// The part of the certificate's summary that replaces the bare exit status.
    pub(super) fn tell(self, exit: Exit, stderr: &str, program: &str) -> Option<String> {
        match self {
            Self::Exit => None,
            Self::ExitAnd(text) => Some(format!("{exit}; {text}")),
            Self::Told(text) => Some(text),
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
