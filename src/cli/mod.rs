//! The command line: reads the arguments, calls the server, and prints the answers.
//!
//! Data goes to standard output, everything else to standard error. Only this module and `config` read the environment.

mod access;
mod args;
mod bench;
mod cancel;
mod config;
mod dead;
mod event;
mod exit;
mod format;
mod health;
mod json;
mod list;
mod operate;
mod output;
mod payload;
mod pool_events;
mod queries;
mod reload;
mod run;
mod serve;
mod stream;
mod submit;
mod table;
mod worker;
mod workers;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tokio::runtime;

use args::{Cli, Command, ConfigCommand, WorkerCommand};
use exit::{CliError, CliExit};

use crate::client::Endpoint;

/// Runs the command that the arguments ask for.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match perform(cli) {
        Ok(code) => code,
        // The reader of the output, such as `head`, needs no more of it.
        Err(error) if error.is_broken_pipe() => CliExit::Done.into(),
        Err(error) => {
            output::error(&error.to_string());
            error.exit().into()
        }
    }
}

fn perform(cli: Cli) -> Result<ExitCode, CliError> {
    // Parsed only for the commands that need a server: a wrong one in the environment must not keep `serve` from running.
    let (endpoint, access) = (cli.endpoint, cli.access);
    let server = || -> Result<Endpoint, CliError> {
        let bad = |error| CliError::Usage(format!("--endpoint {endpoint}: {error}"));
        let mut server: Endpoint = endpoint.parse().map_err(bad)?;
        server.credentials = access::credentials(access)?;
        Ok(server)
    };
    let exit = match cli.command {
        Command::Serve(args) => return serve::serve(args),
        Command::Worker(WorkerCommand::Echo) => return worker::echo(),
        Command::Run(args) => wait_for(run::run(&server()?, args)),
        Command::Submit(args) => wait_for(submit::submit(&server()?, args)),
        Command::Stream(args) => wait_for(stream::stream(&server()?, args)),
        Command::Cancel(args) => wait_for(cancel::cancel(&server()?, args)),
        Command::Health(args) => wait_for(health::health(&server()?, args)),
        Command::Workers(args) => wait_for(workers::workers(&server()?, args)),
        Command::Queries(args) => wait_for(queries::queries(&server()?, args)),
        Command::Dead(command) => wait_for(dead::dead(&server()?, command)),
        Command::Scale(args) => wait_for(operate::scale(&server()?, args)),
        Command::Restart(args) => wait_for(operate::restart(&server()?, args)),
        Command::Evict(args) => wait_for(operate::evict(&server()?, args)),
        Command::Drain(args) => wait_for(operate::drain(&server()?, args)),
        Command::Resume(args) => wait_for(operate::resume(&server()?, args)),
        Command::Reload(args) => wait_for(reload::reload(&server()?, args)),
        Command::Events(args) => wait_for(pool_events::events(&server()?, args)),
        Command::Bench(args) => bench::bench(server, *args),
        Command::Config(ConfigCommand::Check { file }) => config::check(file),
        Command::Config(ConfigCommand::Show(args)) => config::show(args),
        Command::Config(ConfigCommand::Example) => config::example(),
        Command::Completions { shell } => completions(shell),
    };
    exit.map(ExitCode::from)
}

/// Runs a command that calls the server. One thread is enough for that, and starts fastest.
fn wait_for(command: impl Future<Output = Result<CliExit, CliError>>) -> Result<CliExit, CliError> {
    runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::system)?.block_on(command)
}

/// Writes into memory first: the generator panics on a closed pipe.
fn completions(shell: clap_complete::Shell) -> Result<CliExit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "remuda", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(CliExit::Done)
}
