//! The commands of operators: their refusals, and the end of watching.

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;
use remuda::api::proto::{self, scale_kind_request::Target};
use tokio::time::timeout;
use tonic::Code;

use crate::harness::{Server, eventually, fake_kind, output_of, remuda, run, send_signal};

fn server() -> Server {
    Server::start(&fake_kind("k", &[], "min = 1\nmax = 2"))
}

#[tokio::test]
async fn missing_objects_are_named() {
    let server = server();
    for verb in ["restart", "evict", "drain", "resume"] {
        let (code, out, err) = run(&server, &[verb, "99"]);
        assert_eq!((code, out.as_str()), (1, ""), "{verb}: {err}");
        assert!(err.contains("worker 99 is not known"), "{verb}: {err}");
    }
    let (code, _, err) = run(&server, &["scale", "x", "1"]);
    assert!(code == 1 && err.contains("there is no kind \"x\"; this pool has: k"), "{code} {err}");
    let (code, _, err) = run(&server, &["events", "--kind", "x"]);
    assert!(code == 1 && err.contains("there is no kind \"x\"; this pool has: k"), "{code} {err}");
    let (code, _, err) = run(&server, &["events", "--name", "worker:ill"]);
    assert!(code == 2 && err.contains("names: has \"worker:ill\", which is no event; known are: "), "{code} {err}");
}

#[tokio::test]
async fn wrong_requests_name_their_fields() {
    let server = server();
    let mut admin = server.client().await.admin;
    let scale = |kind: &str, target| proto::ScaleKindRequest { kind: kind.to_owned(), target };
    let status = admin.scale_kind(scale("", Some(Target::Workers(1)))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "kind: is missing; name the kind to scale"));
    let status = admin.scale_kind(scale("k", None)).await.unwrap_err();
    assert!(status.code() == Code::InvalidArgument && status.message().starts_with("target: is missing"), "{status}");
    let status = admin.scale_kind(scale("x", Some(Target::By(1)))).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let reason = "x".repeat(1_025);
    let status = admin.drain_pool(proto::DrainPoolRequest { reason }).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "reason: has 1025 bytes; at most 1024 are allowed")
    );
}

/// Watches for what does not happen in these tests.
fn watch(server: &Server) -> Child {
    let mut command = remuda();
    command.args(["--endpoint", &server.grpc, "events", "--json", "--name", "pool:reloaded"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the command to mind Ctrl-C", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        let interrupt = 1 << (Signal::SIGINT as u64 - 1);
        (u64::from_str_radix(caught, 16).unwrap() & interrupt != 0).then_some(())
    });
    child
}

#[tokio::test]
async fn watching_ends_quietly_with_ctrl_c() {
    let server = server();
    let child = watch(&server);
    send_signal(child.id(), Signal::SIGINT);
    assert_eq!(output_of(&child.wait_with_output().unwrap()), (0, String::new(), String::new()));
}

#[tokio::test]
async fn watching_ends_quietly_when_nobody_reads_the_pipe() {
    let server = server();
    let mut child = watch(&server);
    drop(child.stdout.take());
    eventually("the command to notice", || child.try_wait().unwrap());
    assert_eq!(output_of(&child.wait_with_output().unwrap()), (0, String::new(), String::new()));
}

#[tokio::test]
async fn watching_ends_in_order_when_the_server_stops() {
    let server = server();
    let request = proto::WatchEventsRequest { names: vec!["pool:reloaded".to_owned()], ..Default::default() };
    let mut events = server.client().await.admin.watch_events(request).await.unwrap().into_inner();
    assert!(timeout(Duration::from_millis(50), events.message()).await.is_err(), "nothing has happened");
    assert!(server.stop_cleanly().success());
    assert_eq!(events.message().await.expect("a clean end"), None);
}
