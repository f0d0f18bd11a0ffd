//! The `remuda` command.

use std::{env, process::ExitCode};

use remuda::{cli, worker};

fn main() -> ExitCode {
    // The server starts each worker through this binary: no command line, no runtime, nothing that takes time.
    if env::args_os().nth(1).is_some_and(|argument| argument == worker::LAUNCH_ARGUMENT) {
        return worker::launch(env::args_os().nth(2).and_then(|plan| plan.into_string().ok()));
    }
    if env::args_os().nth(1).is_some_and(|argument| argument == worker::GUARD_ARGUMENT) {
        return worker::guard();
    }
    if env::args_os().nth(1).is_some_and(|argument| argument == worker::REACH_ARGUMENT) {
        return worker::try_reach(env::args_os().nth(2).and_then(|errand| errand.into_string().ok()));
    }
    cli::main()
}
