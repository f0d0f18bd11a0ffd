//! The launcher: a short life of our own binary between the server and a worker's command.
//!
//! The server starts workers with `posix_spawn`, which stays fast however large the server has grown, but cannot run
//! code in the child. So it starts this launcher, which sets the child up and then executes the command in its place.

use std::{
    ffi::CString,
    fs, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use nix::unistd::{Gid, Uid, User};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::descriptors::close_inherited_on_exec;

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
    pub user: Option<String>,
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
    Descriptors,
    Execute,
    Interpreter,
}

/// Runs the launcher. Comes back only if the worker's command could not be executed.
#[must_use]
pub fn launch(plan: Option<String>) -> ExitCode {
    let failure = match attempt(plan) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let report = serde_json::to_string(&failure).unwrap_or_default();
    #[expect(clippy::print_stderr, reason = "the server reads the reason from here")]
    {
        eprintln!("{REPORT_PREFIX}{report}");
    }
    ExitCode::from(u8::try_from(LAUNCH_FAILED).expect("an exit code is a byte"))
}

fn attempt(plan: Option<String>) -> Result<std::convert::Infallible, LaunchFailure> {
    let plan = plan.ok_or_else(|| LaunchFailure::said(Stage::Plan, "no plan was given"))?;
    let plan: LaunchPlan =
        serde_json::from_str(&plan).map_err(|error| LaunchFailure::said(Stage::Plan, &error.to_string()))?;
    close_inherited_on_exec().map_err(|error| LaunchFailure::io(Stage::Descriptors, &error))?;
    if let Some(user) = &plan.user {
        become_user(user)?;
    }
    // After the change of user, which clears it.
    die_with_parent(plan.parent)?;
    if let Some(directory) = &plan.directory {
        std::env::set_current_dir(directory).map_err(|error| LaunchFailure::io(Stage::Directory, &error))?;
    }
    let (program, arguments) =
        plan.command.split_first().ok_or_else(|| LaunchFailure::said(Stage::Plan, "the command is empty"))?;
    let error = Command::new(program).args(arguments).exec();
    // The kernel says "no such file" of a script that is there, too, if its interpreter is not.
    let script = error.kind() == io::ErrorKind::NotFound && program.contains('/') && fs::metadata(program).is_ok();
    Err(LaunchFailure::io(if script { Stage::Interpreter } else { Stage::Execute }, &error))
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

fn become_user(name: &str) -> Result<(), LaunchFailure> {
    let fail = |errno: nix::errno::Errno| LaunchFailure::io(Stage::User, &io::Error::from(errno));
    let user = User::from_name(name)
        .map_err(fail)?
        .ok_or_else(|| LaunchFailure::said(Stage::User, &format!("there is no user {name:?} on this machine")))?;
    if user.uid == Uid::effective() && user.gid == Gid::effective() {
        return Ok(());
    }
    let c_name = CString::new(name).map_err(|error| LaunchFailure::said(Stage::User, &error.to_string()))?;
    nix::unistd::initgroups(&c_name, user.gid).map_err(fail)?;
    nix::unistd::setgid(user.gid).map_err(fail)?;
    nix::unistd::setuid(user.uid).map_err(fail)
}

impl LaunchFailure {
    fn io(stage: Stage, error: &io::Error) -> Self {
        Self { stage, errno: error.raw_os_error(), message: error.to_string() }
    }

    fn said(stage: Stage, message: &str) -> Self {
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
