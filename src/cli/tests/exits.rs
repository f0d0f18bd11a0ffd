//! Tests of the exit codes.

use std::io;

use crate::{
    cli::exit::{CliError, CliExit},
    client::{ClientError, Code, Refusal},
};

fn refused(code: Code) -> ClientError {
    let message = "the queue is full".to_owned();
    ClientError::Refused(Box::new(Refusal { code, message, fields: Vec::new(), retry_after: None }))
}

fn unreachable() -> ClientError {
    ClientError::Unreachable { endpoint: "http://127.0.0.1:50051".to_owned(), message: "connection refused".to_owned() }
}

#[test]
fn exit_codes_are_those_documented() {
    let exits =
        [CliExit::Done, CliExit::Failed, CliExit::Usage, CliExit::Cancelled, CliExit::Rejected, CliExit::Unreachable]
            .map(|exit| exit as u8);
    assert_eq!(exits, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn refused_query_is_rejected_only_if_a_retry_may_help() {
    let exit = |code| CliError::NotAccepted(refused(code)).exit();
    assert_eq!(exit(Code::ResourceExhausted), CliExit::Rejected);
    assert_eq!(exit(Code::Unavailable), CliExit::Rejected);
    assert_eq!(exit(Code::InvalidArgument), CliExit::Usage);
    assert_eq!(exit(Code::Cancelled), CliExit::Cancelled);
    for code in [Code::NotFound, Code::AlreadyExists, Code::FailedPrecondition, Code::DeadlineExceeded, Code::Internal]
    {
        assert_eq!(exit(code), CliExit::Failed, "{code:?}");
    }
}

#[test]
fn other_calls_fail_or_are_usage_errors() {
    let exit = |code| CliError::Call(refused(code)).exit();
    assert_eq!(exit(Code::InvalidArgument), CliExit::Usage);
    assert_eq!(exit(Code::OutOfRange), CliExit::Usage);
    for code in [Code::NotFound, Code::ResourceExhausted, Code::Unavailable, Code::Cancelled, Code::Internal] {
        assert_eq!(exit(code), CliExit::Failed, "{code:?}");
    }
}

#[test]
fn unreachable_server_comes_with_advice_to_start_one() {
    let failure = CliError::NotAccepted(unreachable());
    assert_eq!(failure.exit(), CliExit::Unreachable);
    assert_eq!(
        failure.to_string(),
        "cannot reach remuda at http://127.0.0.1:50051: connection refused; is it running? start it with: remuda serve"
    );
    assert_eq!(CliError::Call(unreachable()).exit(), CliExit::Unreachable);
}

#[test]
fn lost_connection_names_the_next_event() {
    let error = ClientError::Lost { endpoint: "http://h:1".to_owned(), message: "broken pipe".to_owned() };
    let failure = CliError::CutOff { error, query_id: "q".to_owned(), next: 7 };
    assert_eq!(failure.exit(), CliExit::Unreachable);
    assert_eq!(
        failure.to_string(),
        "lost the connection to remuda at http://h:1: broken pipe\n  \
         the query may still run; read on with: remuda stream q --from 7"
    );
}

#[test]
fn closed_pipe_is_the_only_silent_error() {
    assert!(CliError::Output(io::ErrorKind::BrokenPipe.into()).is_broken_pipe());
    assert!(!CliError::Output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
    assert!(!CliError::system(io::Error::from(io::ErrorKind::BrokenPipe)).is_broken_pipe());
}
