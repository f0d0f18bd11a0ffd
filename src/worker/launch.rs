//! The launcher: a short life of our own binary between the server and a worker's command.
//!
//! The server starts workers with `posix_spawn`, which stays fast however large the server has grown, but cannot run
//! code in the child. So it starts this launcher, which sets the child up and then executes the command in its place.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};

use crate::{config::Confinement, system::close_inherited_on_exec};

use super::{
    capabilities,
    confine::{self, Surroundings},
    identity,
};

/// The first argument that turns our binary into the launcher.
pub const LAUNCH_ARGUMENT: &str = "__launch";
/// The exit code for "the worker's command was never executed".
pub(super) const LAUNCH_FAILED: i32 = 125;
/// What the line on stderr begins with that says why.
const REPORT_PREFIX: &str = "remuda-launch: ";

/// What the launcher is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchPlan {
    /// The server's process id. If it is not our parent any more, the server died: nobody wants the worker.
    pub parent: i32,
    pub directory: Option<String>,
    /// Whether the directory is this worker's alone.
    pub private: bool,
    pub user: Option<String>,
    pub group: Option<String>,
    pub confinement: Confinement,
    pub command: Vec<String>,
}

/// Why a worker's command was not executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchFailure {
    pub stage: Stage,
    pub errno: Option<i32>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Plan,
    Parent,
    Directory,
    User,
    Group,
    Session,
    Descriptors,
    Limits,
    Privileges,
    Landlock,
    Execute,
    /// Landlock is why it could not be executed, as likely as not.
    Confined,
    Interpreter,
}

/// Runs the launcher. Comes back only if the worker's command could not be executed.
#[must_use]
pub fn launch(plan: Option<String>) -> ExitCode {
    report(&attempt(plan))
}

fn report(failure: &LaunchFailure) -> ExitCode {
    let report = serde_json::to_string(failure).unwrap_or_default();
    #[expect(clippy::print_stderr, reason = "the server reads the reason from here")]
    {
        eprintln!("{REPORT_PREFIX}{report}");
    }
    ExitCode::from(u8::try_from(LAUNCH_FAILED).expect("an exit code is a byte"))
}

fn attempt(plan: Option<String>) -> LaunchFailure {
    let Some(plan) = plan else { return LaunchFailure::said(Stage::Plan, "no plan was given") };
    match (serde_json::from_str(&plan), set_apart()) {
        (Ok(plan), Ok(())) => follow(&plan),
        (Ok(_), Err(failure)) => failure,
        (Err(error), _) => LaunchFailure::said(Stage::Plan, &error.to_string()),
    }
}

/// Comes back only with the reason why the command was not executed.
fn follow(plan: &LaunchPlan) -> LaunchFailure {
    let ready = prepare(plan).and_then(|()| split(plan));
    let (program, arguments) = match ready {
        Ok(command) => command,
        Err(failure) => return failure,
    };
    let error = Command::new(program).args(arguments).exec();
    why_not_executed(program, &error, &plan.confinement)
}

fn split(plan: &LaunchPlan) -> Result<(&String, &[String]), LaunchFailure> {
    plan.command.split_first().ok_or_else(|| LaunchFailure::said(Stage::Plan, "the command is empty"))
}

/// Does what is the same for every worker, and comes first.
pub(super) fn set_apart() -> Result<(), LaunchFailure> {
    close_inherited_on_exec().map_err(|error| LaunchFailure::io(Stage::Descriptors, &error))?;
    // A session has no terminal at first, and nobody from outside can join a process group in it.
    setsid().map_err(|error| LaunchFailure::io(Stage::Session, &error.into()))?;
    Ok(())
}

/// Becomes what the worker will be, but for its program, once it is set apart.
pub(super) fn prepare(plan: &LaunchPlan) -> Result<(), LaunchFailure> {
    confine::limit(&plan.confinement)?;
    identity::take_on(plan.user.as_deref(), plan.group.as_deref())?;
    capabilities::give_up()?;
    // After the change of user, which clears it.
    die_with_parent(plan.parent)?;
    if let Some(directory) = &plan.directory {
        std::env::set_current_dir(directory).map_err(|error| LaunchFailure::io(Stage::Directory, &error))?;
    }
    confine::renounce(&plan.confinement)?;
    let (program, _) = split(plan)?;
    let around = Surroundings {
        program: program.contains('/').then_some(program),
        directory: plan.directory.as_deref(),
        private: plan.private,
    };
    confine::shut_in(&plan.confinement, &around)
}

fn why_not_executed(program: &str, error: &io::Error, confinement: &Confinement) -> LaunchFailure {
    // The kernel says "no such file" of a script that is there, too, if its interpreter is not.
    let script = error.kind() == io::ErrorKind::NotFound && program.contains('/') && fs::metadata(program).is_ok();
    let stage = match error.kind() {
        _ if script => Stage::Interpreter,
        io::ErrorKind::PermissionDenied if confinement.wants_landlock() => Stage::Confined,
        _ => Stage::Execute,
    };
    LaunchFailure::io(stage, error)
}

/// Asks the kernel to kill us when the server's spawning thread ends, and checks that it has not ended already.
fn die_with_parent(parent: i32) -> Result<(), LaunchFailure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| LaunchFailure::io(Stage::Parent, &error.into()))?;
    if getppid().map(Pid::as_raw_pid) == Some(parent) {
        Ok(())
    } else {
        Err(LaunchFailure::said(Stage::Parent, "the server ended before the worker was started"))
    }
}

impl LaunchFailure {
    pub(super) fn io(stage: Stage, error: &io::Error) -> Self {
        Self { stage, errno: error.raw_os_error(), message: error.to_string() }
    }

    pub(super) fn said(stage: Stage, message: &str) -> Self {
        Self { stage, errno: None, message: message.to_owned() }
    }

    /// What the child itself wrote, without the launcher's report.
    pub(super) fn strip(stderr: &str) -> String {
        stderr.split_inclusive('\n').filter(|line| !line.starts_with(REPORT_PREFIX)).collect()
    }

    /// Finds the launcher's report in what the child wrote to stderr.
    pub(super) fn find(stderr: &str) -> Option<Self> {
        let line = stderr.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX))?;
        serde_json::from_str(line).ok()
    }
}
