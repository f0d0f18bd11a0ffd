//! The command line, run to its end.

use std::{
    process::{Child, Output},
    time::Duration,
};

use super::{Server, eventually_within, remuda};

/// Runs the command against a server and gives its exit code, stdout and stderr.
pub(crate) fn run(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc]).args(arguments);
    output_of(&command.output().expect("the command runs"))
}

/// Waits for a command that must end by itself.
pub(crate) fn finish_within(limit: Duration, mut child: Child) -> (i32, String, String) {
    eventually_within(limit, "the command to end", || child.try_wait().unwrap());
    output_of(&child.wait_with_output().unwrap())
}

/// An exit code, stdout and stderr.
pub(crate) fn output_of(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the command prints UTF-8");
    (output.status.code().expect("it exits by itself"), text(&output.stdout), text(&output.stderr))
}
