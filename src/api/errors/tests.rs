//! Tests of the codes, reasons and details of statuses.

use super::*;

#[test]
fn status_of_tonic_is_explained_unless_it_has_details() {
    let reason = |status: Status| {
        let explained = explain_tonic_status(&status)?;
        let reason = explained.get_error_details().error_info()?.reason.clone();
        Some((explained.code(), reason))
    };
    let expected = |code, reason: &str| Some((code, reason.to_owned()));
    assert_eq!(reason(Status::out_of_range("x")), expected(Code::ResourceExhausted, "MESSAGE_TOO_LARGE"));
    assert_eq!(reason(Status::internal("x")), expected(Code::InvalidArgument, "MALFORMED_REQUEST"));
    assert_eq!(reason(Status::internal("compressed-flag")), expected(Code::Internal, "BAD_COMPRESSED_FLAG"));
    assert_eq!(reason(Status::unimplemented("")), expected(Code::Unimplemented, "METHOD_NOT_FOUND"));
    let mut unknown = Status::unimplemented("snappy");
    unknown.metadata_mut().insert("grpc-accept-encoding", "gzip".parse().unwrap());
    assert_eq!(reason(unknown), expected(Code::Unimplemented, "UNSUPPORTED_COMPRESSION"));
    assert_eq!(reason(Status::not_found("x")), None);
    assert_eq!(reason(status(Code::Internal, "WORKER_DIED", "x", &[])), None);
}

#[test]
fn status_fits_into_trailers_whatever_the_worker_sent() {
    let failure = Failure::new(FailureReason::Reported, "ä".repeat(100_000));
    let status = failure_status(&failure);
    assert!(status.message().len() <= MESSAGE_MAX_BYTES + "…".len());
    assert!(status.details().len() < 2_000);
}

#[test]
fn admin_errors_have_their_code_and_reason() {
    let worker = WorkerId(7);
    let query = crate::model::QueryId::parse("x").unwrap();
    let limit = "embed may have 1 to 4 workers".to_owned();
    let cases = [
        (
            AdminError::NoSuchKind { kind: "x".to_owned(), known: "embed".to_owned() },
            (Code::NotFound, "KIND_NOT_FOUND", "there is no kind \"x\"; this pool has: embed"),
        ),
        (AdminError::NoSuchWorker(worker), (Code::NotFound, "WORKER_NOT_FOUND", "worker 7 is not known")),
        (
            AdminError::OutOfRange { field: "workers", asked: "9".to_owned(), limit },
            (Code::OutOfRange, "OUT_OF_RANGE", "workers: 9 is out of range; embed may have 1 to 4 workers"),
        ),
        (
            AdminError::Busy { worker, query },
            (Code::FailedPrecondition, "WORKER_BUSY", "worker 7 runs query x; drain it, or cancel the query, first"),
        ),
        (
            AdminError::AtMinimum { kind: "embed".into(), min: 2 },
            (
                Code::FailedPrecondition,
                "AT_MINIMUM",
                "kind embed has no more workers than the 2 it keeps; scale it down",
            ),
        ),
        (AdminError::Stopping(worker), (Code::FailedPrecondition, "WORKER_STOPPING", "worker 7 is being stopped")),
        (AdminError::ShuttingDown, (Code::Unavailable, "SHUTDOWN", "the server is stopping")),
        (AdminError::NoConfigFile, (Code::FailedPrecondition, "NO_CONFIG_FILE", "the server was started without")),
        (
            AdminError::BadConfig("a.toml:2:1: oops".to_owned()),
            (Code::InvalidArgument, "BAD_CONFIG", "nothing was changed: a.toml:2:1: oops"),
        ),
    ];
    for (error, (code, reason, text)) in cases {
        let status = Status::from(error);
        assert_eq!(status.code(), code, "{reason}");
        assert!(status.message().starts_with(text), "{status}");
        assert_eq!(status.get_error_details().error_info().unwrap().reason, reason);
        let fields = status.get_error_details().bad_request().map(|bad| bad.field_violations[0].field.clone());
        assert_eq!(fields.as_deref(), (code == Code::OutOfRange).then_some("workers"));
    }
}

#[test]
fn config_errors_fit_into_trailers() {
    let status = Status::from(AdminError::BadConfig("remuda.toml:1:1: is wrong\n".repeat(1_000)));
    assert!((1_900..2_100).contains(&status.message().len()));
    assert!(status.details().len() < 2_500);
}

#[test]
fn violations_are_all_named() {
    let mut violations = Violations::default();
    violations.add("query.payload", "is empty");
    violations.add("query.priority", "is 2000; at most 1000 is allowed");
    let status = violations.check().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "query.payload: is empty; query.priority: is 2000; at most 1000 is allowed");
    let details = status.get_error_details();
    assert_eq!(details.bad_request().unwrap().field_violations.len(), 2);
    assert_eq!(details.error_info().unwrap().domain, "remuda");
}
