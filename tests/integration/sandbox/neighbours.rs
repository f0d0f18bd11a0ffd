//! Workers cannot spy on the server or on each other; as the first process, the server reaps orphans.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{
    Client, NOBODY, Server, TestEvent, alive, descendants, eventually, eventually_async, fake_kind, guardian_of,
    is_root, public_copy, public_dir, query, send_signal, skip,
};

/// The outcome of an attempt by a worker of the kind that serves this type.
async fn attempt(client: &mut Client, query_type: &str, attempt: serde_json::Value) -> String {
    let mut asked = query(&json!({"steps": [{ "try": attempt }]}));
    asked.r#type = query_type.to_owned();
    let ended = client.execute(asked).await;
    match &ended.test_events()[0] {
        TestEvent::Message(outcome) => outcome.as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn environment_of(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/environ")).unwrap()).into_owned()
}

#[tokio::test]
async fn worker_of_the_servers_own_user_cannot_look_into_the_server() {
    if !is_root() {
        return;
    }
    let programs = public_dir();
    let remuda = public_copy(env!("CARGO_BIN_EXE_remuda"), &programs);
    let worker = public_copy(env!("CARGO_BIN_EXE_fake-worker"), &programs);
    let config = format!("[kinds.k]\ncommand = [{worker:?}]\ntypes = [\"k\"]\nmin = 1\nmax = 1\ndir = \"private\"\n");
    let server = Server::start_by(&config, |dir, file| {
        for path in [dir, file] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(remuda);
        command.arg("serve").arg("--config").arg(file).env("SECRET", "hush").uid(NOBODY).gid(NOBODY);
        command
    });
    let mut client = server.client().await;
    let (own, guardian) = (server.pid(), guardian_of(server.pid()));
    assert!(environment_of(own).contains("SECRET=hush"));
    assert_eq!(environment_of(guardian), "", "the guardian has none of it");
    for process in [own, guardian] {
        for (how, what) in [("read", "environ"), ("read", "mem"), ("read", "auxv"), ("list", "fd")] {
            let path = format!("/proc/{process}/{what}");
            assert_eq!(attempt(&mut client, "k", json!({ how: path })).await, "PermissionDenied", "{path}");
        }
    }
    let pid = server.worker_pids()[0];
    assert!(!environment_of(pid).contains("hush"));
    // To be seen by nobody costs the server nothing.
    let worker = client.workers().await.remove(0);
    assert!(worker.rss_bytes > 0, "{worker:?}");
    let dead = worker.worker_id;
    send_signal(pid, Signal::SIGKILL);
    eventually_async("the death to be noticed", || {
        let mut client = client.clone();
        async move { client.workers().await.iter().all(|other| other.worker_id != dead).then_some(()) }
    })
    .await;
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}));
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

/// The path of the socket of a worker that has not connected yet.
fn socket_of(base: &Path, worker: u64) -> PathBuf {
    eventually("the worker's socket", || {
        let dirs = fs::read_dir(base).unwrap().flatten().map(|entry| entry.path().join(worker.to_string()));
        dirs.into_iter().find(|path| path.exists())
    })
}

#[tokio::test]
async fn worker_cannot_connect_in_place_of_another() {
    let late = fake_kind("late", &["--start", r#"["hang"]"#], "types = [\"late\"]\nmin = 1\nconnect_timeout = \"60s\"");
    let busy = fake_kind("busy", &[], "types = [\"busy\"]\nmin = 1");
    let server = Server::start(&format!("{late}{busy}"));
    let socket = socket_of(server.dir.path(), 1);
    let leader = eventually("the late worker", || {
        server
            .worker_pids()
            .into_iter()
            .find(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("hang")))
    });
    let mut client = server.client().await;
    assert_eq!(attempt(&mut client, "busy", json!({"connect": socket})).await, "ConnectionReset");
    let line = server.logs("refused a connection from outside the worker's process group");
    assert!(line.contains(&format!("\"worker_pid\":{leader}")), "{line}");
    assert_eq!(attempt(&mut client, "busy", json!({"join_group": leader})).await, "PermissionDenied");
    assert_eq!(attempt(&mut client, "busy", json!({"connect": socket})).await, "ConnectionReset");
    let refusals = server.log().iter().filter(|line| line.contains("refused a connection")).count();
    assert_eq!(refusals, 1, "one who keeps trying does not fill the log");
}

#[tokio::test]
async fn worker_of_another_user_cannot_even_reach_a_socket_that_is_not_its_own() {
    if !is_root() {
        return;
    }
    let (programs, sockets) = (public_dir(), public_dir());
    let worker = public_copy(env!("CARGO_BIN_EXE_fake-worker"), &programs);
    let kind = |name: &str, arguments: &str, user: &str| {
        let settings = format!("types = [{name:?}]\nmin = 1\nconnect_timeout = \"60s\"\n{user}");
        format!("[kinds.{name}]\ncommand = [{worker:?}{arguments}]\n{settings}\n")
    };
    let hang = r#", "--start", '["hang"]'"#;
    let kinds =
        [kind("owned", hang, ""), kind("foreign", hang, "user = \"daemon\""), kind("nobody", "", "user = \"nobody\"")];
    let server = Server::start_with(&kinds.concat(), |command| {
        command.env("REMUDA__POOL__SOCKET_DIR", sockets.path());
    });
    let mut client = server.client().await;
    for worker in [1, 2] {
        let socket = socket_of(sockets.path(), worker);
        assert_eq!(attempt(&mut client, "nobody", json!({"connect": socket})).await, "PermissionDenied");
        let around = socket.parent().unwrap();
        assert_eq!(attempt(&mut client, "nobody", json!({"list": around})).await, "PermissionDenied");
        assert_eq!(attempt(&mut client, "nobody", json!({"write": around.join("new")})).await, "PermissionDenied");
    }
}

#[tokio::test]
async fn server_as_first_process_reaps_what_it_inherits_and_nothing_else() {
    if !is_root() {
        return;
    }
    let in_namespace = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).args(command);
        unshare
    };
    if !in_namespace(&["true"]).status().is_ok_and(|status| status.success()) {
        return skip("a pid namespace (unshare)");
    }
    let mut server = Server::start_by(&fake_kind("k", &[], "min = 1\nmax = 1"), |_, file| {
        let file = file.to_str().unwrap();
        in_namespace(&[env!("CARGO_BIN_EXE_remuda"), "serve", "--config", file])
    });
    let mut client = server.client().await;
    let ended = client.execute(query(&json!({"steps": ["grandchild_setsid", {"exit": 7}]}))).await;
    assert!(matches!(ended.last(), TestEvent::Error(text) if text.contains("exited with code 7")), "{ended:?}");
    let is_orphan = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("--sleep-forever-setsid"))
    };
    let orphan = eventually("the orphan", || descendants(server.pid()).into_iter().find(is_orphan));
    send_signal(orphan, Signal::SIGKILL);
    let entry = PathBuf::from(format!("/proc/{orphan}"));
    eventually("the orphan to be reaped", || (!entry.exists()).then_some(()));
    // The workers' own ends are still seen by those who wait for them.
    for code in [8, 9] {
        let ended = client.execute(query(&json!({"steps": [{ "exit": code }]}))).await;
        let text = format!("exited with code {code}");
        assert!(matches!(ended.last(), TestEvent::Error(told) if told.contains(&text)), "{ended:?}");
    }
    let first = descendants(server.pid())[0];
    send_signal(first, Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!alive(first));
}
