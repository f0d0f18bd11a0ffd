//! Which exit code each way of failing has.

use std::io;

use crate::{
    cli::exit::{Exit, Failure},
    client::{ClientError, Code, Refusal},
};

fn refused(code: Code) -> ClientError {
    let message = "the queue is full".to_owned();
    ClientError::Refused(Box::new(Refusal { code, message, reason: None, fields: Vec::new(), retry_after: None }))
}

fn unreachable() -> ClientError {
    ClientError::Unreachable { endpoint: "http://127.0.0.1:50051".to_owned(), message: "connection refused".to_owned() }
}

#[test]
fn exit_codes_are_those_documented() {
    let exits = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Cancelled, Exit::Rejected, Exit::Unreachable]
        .map(|exit| exit as u8);
    assert_eq!(exits, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn refused_query_is_rejected_only_where_it_may_come_again() {
    let exit = |code| Failure::NotAccepted(refused(code)).exit();
    assert_eq!(exit(Code::ResourceExhausted), Exit::Rejected);
    assert_eq!(exit(Code::Unavailable), Exit::Rejected);
    assert_eq!(exit(Code::InvalidArgument), Exit::Usage);
    assert_eq!(exit(Code::Cancelled), Exit::Cancelled);
    for code in [Code::NotFound, Code::AlreadyExists, Code::FailedPrecondition, Code::DeadlineExceeded, Code::Other] {
        assert_eq!(exit(code), Exit::Failed, "{code:?}");
    }
}

#[test]
fn other_calls_fail_or_were_wrong() {
    let exit = |code| Failure::Call(refused(code)).exit();
    assert_eq!(exit(Code::InvalidArgument), Exit::Usage);
    assert_eq!(exit(Code::OutOfRange), Exit::Usage);
    for code in [Code::NotFound, Code::ResourceExhausted, Code::Unavailable, Code::Cancelled, Code::Other] {
        assert_eq!(exit(code), Exit::Failed, "{code:?}");
    }
}

#[test]
fn without_a_server_the_user_is_told_how_to_start_one() {
    let failure = Failure::NotAccepted(unreachable());
    assert_eq!(failure.exit(), Exit::Unreachable);
    assert_eq!(
        failure.to_string(),
        "cannot reach remuda at http://127.0.0.1:50051: connection refused; is it running? start it with: remuda serve"
    );
    assert_eq!(Failure::Call(unreachable()).exit(), Exit::Unreachable);
}

#[test]
fn lost_connection_tells_where_to_read_on() {
    let error = ClientError::Lost { endpoint: "http://h:1".to_owned(), message: "broken pipe".to_owned() };
    let failure = Failure::CutOff { error, query_id: "q".to_owned(), next: 7 };
    assert_eq!(failure.exit(), Exit::Unreachable);
    assert_eq!(
        failure.to_string(),
        "lost the connection to remuda at http://h:1: broken pipe\n  \
         the query may still run; read on with: remuda stream q --from 7"
    );
}

#[test]
fn only_a_closed_pipe_is_quiet() {
    assert!(Failure::Output(io::ErrorKind::BrokenPipe.into()).is_broken_pipe());
    assert!(!Failure::Output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
    assert!(!Failure::system(io::Error::from(io::ErrorKind::BrokenPipe)).is_broken_pipe());
}
