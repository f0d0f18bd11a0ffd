//! `remuda worker echo`: runs the built-in echo worker.

use std::{env, path::Path, process::ExitCode};

use super::exit::CliError;
use crate::workers::echo;

pub(super) fn echo() -> Result<ExitCode, CliError> {
    let Some(socket) = env::var_os("REMUDA_SOCKET") else {
        return Err(CliError::Usage(
            "this is the built-in demonstration worker, which the server starts: there is no REMUDA_SOCKET to connect \
             to\n  to see it work: remuda serve, and in another terminal: remuda run '{\"hello\":\"world\"}'\n  \
             its options: remuda worker echo --help"
                .to_owned(),
        ));
    };
    let socket = Path::new(&socket);
    echo::run(socket).map_err(|error| CliError::system(format!("echo worker: {}: {error}", socket.display())))
}
