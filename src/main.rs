//! The `remuda` command.

use std::{env, process::ExitCode};

use remuda::{cli, worker};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    match arguments.next() {
        // The server starts each worker through this binary: no command line, no runtime, nothing that takes time.
        Some(role) if role == worker::LAUNCH_ARGUMENT => {
            worker::run_launcher(arguments.next().and_then(|plan| plan.into_string().ok()))
        }
        Some(role) if role == worker::GUARD_ARGUMENT => worker::run_guardian(),
        _ => cli::main(),
    }
}
