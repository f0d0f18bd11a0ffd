//! `remuda worker echo`: being a worker.

use std::{env, path::Path, process::ExitCode};

use super::exit::Failure;
use crate::workers::echo;

pub(super) fn echo() -> Result<ExitCode, Failure> {
    let Some(socket) = env::var_os("REMUDA_SOCKET") else {
        return Err(Failure::Usage(
            "this is the built-in demonstration worker, which the server starts: there is no REMUDA_SOCKET to connect \
             to\n  to see it work: remuda serve, and in another terminal: remuda run '{\"hello\":\"world\"}'\n  \
             what it can do: remuda worker echo --help"
                .to_owned(),
        ));
    };
    let socket = Path::new(&socket);
    echo::run(socket).map_err(|error| Failure::system(format!("echo worker: {}: {error}", socket.display())))
}
