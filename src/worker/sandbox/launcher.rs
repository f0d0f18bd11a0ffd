//! The launcher: our own binary, run between the server and a worker's command.
//!
//! The server starts workers with `posix_spawn`, which stays fast however large the server has grown, but cannot run
//! code in the child. So it starts this launcher, which sets itself up and then executes the command in its place.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use crate::system::close_inherited_on_exec;

use super::{
    capabilities, identity, landlock, limits,
    plan::{LAUNCH_FAILED, LaunchFailure, LaunchPlan},
    probe,
};

/// First argument that selects the launcher.
pub const LAUNCH_ARGUMENT: &str = "__launch";

/// Runs the launcher. Returns only if the worker's command was not executed.
#[must_use]
pub fn run_launcher(plan: Option<String>) -> ExitCode {
    match launch(plan) {
        Ok(code) => code,
        Err(failure) => {
            #[expect(clippy::print_stderr, reason = "the server reads the report there")]
            {
                eprintln!("{}", failure.to_line());
            }
            ExitCode::from(LAUNCH_FAILED)
        }
    }
}

fn launch(plan: Option<String>) -> Result<ExitCode, LaunchFailure> {
    let plan = plan.ok_or_else(|| LaunchFailure::new("no plan was given"))?;
    let plan: LaunchPlan = serde_json::from_str(&plan)?;
    let (program, arguments) = plan.command.split_first().ok_or_else(|| LaunchFailure::new("the command is empty"))?;
    let ready = set_up(&plan, program);
    if let Some(files) = &plan.probe {
        // A worker that cannot be started opens no file.
        return Ok(probe::answer(files, ready.is_ok()));
    }
    ready?;
    let error = Command::new(program).args(arguments).exec();
    Err(execution_failure(program, &error, &plan))
}

/// Becomes the worker in everything but its program.
fn set_up(plan: &LaunchPlan, program: &str) -> Result<(), LaunchFailure> {
    close_inherited_on_exec()?;
    // A new session has no terminal, and no process outside it can join its process groups.
    setsid()?;
    limits::set(&plan.confinement)?;
    identity::assume(plan.user.as_deref(), plan.group.as_deref())?;
    capabilities::drop_all()?;
    // After the change of user, which clears the parent-death signal.
    die_with_parent(plan.parent)?;
    if let Some(directory) = &plan.directory {
        std::env::set_current_dir(directory).map_err(|error| {
            LaunchFailure::new(format!("cannot enter its directory: {error}; check the kind's dir"))
        })?;
    }
    if plan.confinement.no_new_privs {
        nix::sys::prctl::set_no_new_privs().map_err(io::Error::from)?;
    }
    landlock::restrict(plan, program)
}

/// Asks the kernel to kill us when the server's spawning thread ends, and checks that it has not ended already.
fn die_with_parent(parent: i32) -> Result<(), LaunchFailure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) == Some(parent) {
        Ok(())
    } else {
        Err(LaunchFailure::new("the server ended before the worker was started"))
    }
}

fn execution_failure(program: &str, error: &io::Error, plan: &LaunchPlan) -> LaunchFailure {
    LaunchFailure::new(match error.kind() {
        // The kernel also reports "no such file" for a script whose interpreter is missing.
        io::ErrorKind::NotFound if program.contains('/') && fs::metadata(program).is_ok() => {
            format!("the interpreter named in the first line of {program:?} was not found")
        }
        io::ErrorKind::NotFound => {
            format!("the command {program:?} was not found; check the kind's command, dir and PATH")
        }
        io::ErrorKind::PermissionDenied if plan.confinement.wants_landlock() => format!(
            "{program:?} must not be executed ({error}); with Landlock, the program, its interpreter and its libraries \
             must be in what the kind's landlock_read lists"
        ),
        _ => format!("{program:?} is not executable ({error}); check its permissions and format"),
    })
}
