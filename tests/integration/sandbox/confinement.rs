//! Confinement of workers: limits, privileges, groups, directories and Landlock.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use nix::sys::signal::Signal;
use remuda::api::proto::Query;
use serde_json::{Value, json};

use crate::harness::{
    Client, NOBODY, Server, TestEvent, alive, eventually, fake_kind, is_root, public_copy, public_dir, query,
    send_signal, skip,
};

/// The part of a file in `/proc` after `name`, without white space around it.
fn proc_line(pid: u32, file: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn surroundings(client: &mut Client) -> Value {
    client.execute(query(&json!({"steps": ["env"]}))).await.result()
}

fn pid_in(seen: &Value) -> u32 {
    seen["pid"].as_u64().unwrap().try_into().unwrap()
}

/// The outcomes of the attempts.
async fn attempts(client: &mut Client, attempts: &[Value]) -> Vec<String> {
    let steps: Vec<_> = attempts.iter().map(|attempt| json!({ "try": attempt })).collect();
    let ended = client.execute(query(&json!({ "steps": steps }))).await;
    let told = ended.test_events().into_iter().filter_map(|event| match event {
        TestEvent::Message(outcome) => Some(outcome.as_str().unwrap().to_owned()),
        _ => None,
    });
    told.collect()
}

/// Why the kind `k` has no worker.
fn reason_not_ready(server: &Server) -> String {
    eventually("the failed start to be known", || {
        let (code, body) = server.get("/readyz");
        let body: Value = serde_json::from_str(&body).unwrap();
        let reason = body["reasons"][0].as_str().unwrap_or_default().to_owned();
        (code == 503 && reason.contains("failed;")).then_some(reason)
    })
}

pub(crate) fn kernel_has_landlock() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(ABI::V1)).is_ok()
}

/// Starts a server whose kind `k` asks for Landlock. Where the kernel has none, the kind must say so, and the rest is skipped.
fn start_with_landlock(config: &str) -> Option<Server> {
    let server = Server::start(config);
    if kernel_has_landlock() {
        return Some(server);
    }
    let reason = reason_not_ready(&server);
    assert!(reason.contains("cannot confine it with Landlock: this kernel has no Landlock"), "{reason}");
    skip("Landlock");
    None
}

#[tokio::test]
async fn worker_gains_no_rights_leaves_no_core_and_leads_its_own_session() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let pid = pid_in(&surroundings(&mut server.client().await).await);
    assert_eq!(proc_line(pid, "status", "NoNewPrivs:"), "1");
    assert_eq!(proc_line(pid, "limits", "Max core file size"), "0 0 bytes");
    assert_eq!(proc_line(pid, "status", "NSsid:").split(' ').next().unwrap(), pid.to_string());
}

#[tokio::test]
async fn new_privileges_can_be_allowed_by_the_kind() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nno_new_privs = false\nmax_core_size = \"none\""));
    let pid = pid_in(&surroundings(&mut server.client().await).await);
    assert_eq!(proc_line(pid, "status", "NoNewPrivs:"), "0");
    let own = proc_line(server.pid(), "limits", "Max core file size");
    assert_eq!(proc_line(pid, "limits", "Max core file size"), own);
}

#[tokio::test]
async fn worker_has_the_limits_of_its_kind() {
    let settings = "min = 1\nmax_open_files = 64\nmax_processes = 5000\nmax_core_size = \"1MiB\"\n\
                    max_file_size = \"1GiB\"\nmax_address_space = \"4GiB\"\nmax_cpu_time = \"1h\"";
    let server = Server::start(&fake_kind("k", &[], settings));
    let mut client = server.client().await;
    let pid = pid_in(&surroundings(&mut client).await);
    for (name, limits) in [
        ("Max open files", "64 64 files"),
        ("Max processes", "5000 5000 processes"),
        ("Max core file size", "1048576 1048576 bytes"),
        ("Max file size", "1073741824 1073741824 bytes"),
        ("Max address space", "4294967296 4294967296 bytes"),
        ("Max cpu time", "3600 3605 seconds"),
    ] {
        assert_eq!(proc_line(pid, "limits", name), limits, "{name}");
    }
    let tried = [json!({"open_files": 10}), json!({"open_files": 100})];
    let outcomes = attempts(&mut client, &tried).await;
    assert_eq!(outcomes[0], "ok");
    assert_ne!(outcomes[1], "ok");
}

#[tokio::test]
async fn limit_that_cannot_be_set_is_named() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax_open_files = 1_000_000_000"));
    let reason = reason_not_ready(&server);
    let text = "could not be started: cannot limit it: max_open_files = 1000000000: Operation not permitted";
    assert!(reason.contains(text) && reason.contains("the server's own limit is "), "{reason}");
}

#[tokio::test]
async fn worker_has_the_group_of_its_kind_and_the_further_groups_of_its_user() {
    if !is_root() {
        return;
    }
    let (programs, sockets) = (public_dir(), public_dir());
    let worker = public_copy(env!("CARGO_BIN_EXE_fake-worker"), &programs);
    let kind = |name: &str, settings: &str| {
        format!("[kinds.{name}]\ncommand = [{worker:?}]\ntypes = [{name:?}]\n{settings}\nmin = 1\n")
    };
    let kinds = kind("both", "user = \"nobody\"\ngroup = \"daemon\"") + &kind("group", "group = \"daemon\"");
    let server = Server::start_with(&kinds, |command| {
        command.env("REMUDA__POOL__SOCKET_DIR", sockets.path());
    });
    let mut client = server.client().await;
    for (name, user, groups) in [("both", NOBODY.to_string(), "1"), ("group", "0".to_owned(), "")] {
        let mut asked = query(&json!({"steps": ["env"]}));
        asked.r#type = name.to_owned();
        let pid = pid_in(&client.execute(asked).await.result());
        assert_eq!(proc_line(pid, "status", "Uid:").split(' ').next().unwrap(), user, "{name}");
        assert_eq!(proc_line(pid, "status", "Gid:"), "1 1 1 1", "{name}");
        assert_eq!(proc_line(pid, "status", "Groups:"), groups, "{name}");
    }
    let workers = server.worker_pids();
    assert_eq!(workers.len(), 2);
    drop(server);
    eventually("the workers to die with the server", || workers.iter().all(|pid| !alive(*pid)).then_some(()));
}

#[tokio::test]
async fn missing_group_is_named() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\ngroup = \"no-such-group\""));
    let reason = reason_not_ready(&server);
    assert!(reason.contains("cannot enter its group: there is no group \"no-such-group\" on this machine"), "{reason}");
}

#[tokio::test]
async fn private_directory_is_the_workers_own_and_goes_with_it() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 2"));
    let mut client = server.client().await;
    let seen = surroundings(&mut client).await;
    let cwd = seen["cwd"].as_str().unwrap();
    assert_eq!(seen["env"]["TMPDIR"], json!(cwd));
    let metadata = fs::metadata(cwd).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(cwd).unwrap().count(), 0);
    assert!(fs::canonicalize(cwd).unwrap().starts_with(fs::canonicalize(server.dir.path()).unwrap()));
    let left = Path::new(cwd).join("deep/down");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("file"), "left behind").unwrap();
    send_signal(pid_in(&seen), Signal::SIGKILL);
    eventually("the directory to go", || (!Path::new(cwd).exists()).then_some(()));
    let next = surroundings(&mut client).await;
    assert_ne!(next["cwd"], seen["cwd"], "the next worker has another");
    fs::write(Path::new(next["cwd"].as_str().unwrap()).join("file"), "left behind").unwrap();
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

/// Three kinds with two workers each, whose command names a script in the server's working directory: as an argument and as the
/// program without `dir`, and as an argument with a `dir` that they share.
fn kinds_of_a_script(dir: &Path) -> String {
    let script = |name: &str, command: &str, dir: &str| {
        format!("[kinds.{name}]\ncommand = {command}\n{dir}\ntypes = [{name:?}]\nmin = 2\nmax = 2\n")
    };
    script("argument", r#"["sh", "worker.sh", "no-such-file.txt", "bare"]"#, "")
        + &script("program", r#"["./worker.sh"]"#, "dir = \"private\"")
        + &script("shared", r#"["sh", "worker.sh"]"#, &format!("dir = \"{}\"", dir.display()))
}

#[tokio::test]
async fn worker_without_dir_has_an_empty_directory_and_finds_a_relative_script() {
    let home = tempfile::tempdir().unwrap();
    let here = fs::canonicalize(home.path()).unwrap();
    let (script, worker) = (here.join("worker.sh"), env!("CARGO_BIN_EXE_fake-worker"));
    fs::write(&script, format!("#!/bin/sh\nSCRIPT=$0 ARGUMENTS=$* exec {worker}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(here.join("bare"), "a file that is called like a word").unwrap();
    let server = Server::start_with(&kinds_of_a_script(&here), |command| {
        command.current_dir(&here);
    });
    let absolute = json!(script);
    let mut client = server.client().await;
    let mut seen = async |kind: &str| {
        let asked = Query { r#type: kind.to_owned(), ..query(&json!({"steps": ["env"]})) };
        client.execute(asked).await.result()
    };
    let (first, program, shared) = (seen("argument").await, seen("program").await, seen("shared").await);
    assert_eq!(first["env"]["SCRIPT"], absolute);
    assert_eq!(first["env"]["ARGUMENTS"], json!("no-such-file.txt bare"), "what is no path is left as it is");
    assert_eq!(program["env"]["SCRIPT"], absolute);
    assert_eq!((&shared["env"]["SCRIPT"], &shared["cwd"]), (&json!("worker.sh"), &json!(here)));
    for kind in ["argument", "program", "shared"] {
        server.until_ready(kind, 2);
    }
    let directory = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    let own: Vec<_> = server.worker_pids().iter().map(directory).filter(|dir| *dir != here).collect();
    assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), 4, "{own:?}");
    for dir in &own {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{}", dir.display());
    }
    assert_eq!(server.stop_cleanly().code(), Some(0));
    assert!(own.iter().all(|dir| !dir.exists()), "{own:?}");
}

#[tokio::test]
async fn private_directory_belongs_to_the_workers_user() {
    if !is_root() {
        return;
    }
    let (programs, sockets) = (public_dir(), public_dir());
    let worker = public_copy(env!("CARGO_BIN_EXE_fake-worker"), &programs);
    let settings = "user = \"nobody\"\ndir = \"private\"\nmin = 1\ntransport = \"stdio\"\n";
    let config = format!("[kinds.k]\ncommand = [{worker:?}, \"--stdio\"]\n{settings}");
    let server = Server::start_with(&config, |command| {
        command.env("REMUDA__POOL__SOCKET_DIR", sockets.path());
    });
    let mut client = server.client().await;
    let seen = surroundings(&mut client).await;
    let cwd = Path::new(seen["cwd"].as_str().unwrap());
    assert_eq!(fs::metadata(cwd).unwrap().uid(), NOBODY);
    assert_eq!(attempts(&mut client, &[json!({"write": cwd.join("mine")})]).await, ["ok"]);
    assert_eq!(fs::metadata(cwd.join("mine")).unwrap().uid(), NOBODY);
    assert_eq!(server.stop_cleanly().code(), Some(0));
    assert!(!cwd.exists());
}

#[tokio::test]
async fn landlock_keeps_a_worker_to_what_its_kind_lists() {
    let dir = tempfile::tempdir().unwrap();
    let [readable, writable, hidden] = ["readable", "writable", "hidden"].map(|name| dir.path().join(name));
    for path in [&readable, &writable, &hidden] {
        fs::create_dir(path).unwrap();
        fs::copy("/bin/true", path.join("program")).unwrap();
    }
    let settings =
        format!("min = 1\ndir = \"private\"\nlandlock_read = [{readable:?}]\nlandlock_write = [{writable:?}]");
    let Some(server) = start_with_landlock(&fake_kind("k", &[], &settings)) else { return };
    let mut client = server.client().await;
    let private = surroundings(&mut client).await["cwd"].as_str().unwrap().to_owned();
    for (attempt, expected) in [
        (json!({"read": readable.join("program")}), "ok"),
        (json!({"execute": readable.join("program")}), "ok"),
        (json!({"write": readable.join("new")}), "PermissionDenied"),
        (json!({"read": writable.join("program")}), "ok"),
        (json!({"write": writable.join("new")}), "ok"),
        (json!({"execute": writable.join("program")}), "PermissionDenied"),
        (json!({"read": hidden.join("program")}), "PermissionDenied"),
        (json!({"list": hidden}), "PermissionDenied"),
        (json!({"write": hidden.join("new")}), "PermissionDenied"),
        (json!({"read": "/etc/shadow"}), "PermissionDenied"),
        (json!({"write": format!("{private}/new")}), "ok"),
        (json!({"write": "/dev/null"}), "ok"),
        (json!({"execute": "/bin/true"}), "ok"),
    ] {
        assert_eq!(attempts(&mut client, std::slice::from_ref(&attempt)).await, [expected], "{attempt}");
    }
    let server_memory = format!("/proc/{}/mem", server.pid());
    assert_eq!(attempts(&mut client, &[json!({"read": server_memory})]).await, ["PermissionDenied"]);
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn landlock_keeps_a_worker_from_signals_and_abstract_sockets_where_the_kernel_can() {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    };
    let name = format!("remuda-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let Some(server) = start_with_landlock(&fake_kind("k", &[], "min = 1\nlandlock_read = []")) else { return };
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let scoped = ruleset.scope(landlock::Scope::from_all(ABI::V6)).is_ok();
    let tried = [json!({"signal": server.pid()}), json!({"connect_abstract": name})];
    let expected = if scoped { ["PermissionDenied"; 2] } else { ["ok"; 2] };
    let mut client = server.client().await;
    assert_eq!(attempts(&mut client, &tried).await, expected);
}

#[tokio::test]
async fn paths_that_landlock_cannot_grant_are_named() {
    let settings = "min = 1\nlandlock_read = [\"/no/such/path\"]";
    if let Some(server) = start_with_landlock(&fake_kind("k", &[], settings)) {
        let reason = reason_not_ready(&server);
        let text = "cannot confine it with Landlock: /no/such/path: No such file or directory (os error 2); check \
                    landlock_read and landlock_write";
        assert!(reason.contains(text), "{reason}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (script, interpreter) = (dir.path().join("worker"), dir.path().join("interpreter"));
    fs::copy("/bin/sh", &interpreter).unwrap();
    fs::write(&script, format!("#!{}\n", interpreter.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!("[kinds.k]\ncommand = [{script:?}]\nlandlock_write = []\n");
    if let Some(server) = start_with_landlock(&config) {
        let reason = reason_not_ready(&server);
        let text = "must not be executed (Permission denied (os error 13)); with Landlock, the program";
        assert!(reason.contains(text), "{reason}");
    }
}

#[tokio::test]
async fn killed_server_leaves_no_confined_worker_behind_either() {
    let worker = env!("CARGO_BIN_EXE_fake-worker");
    let settings = format!("min = 2\ndir = \"private\"\nlandlock_read = [{worker:?}]\nmax_open_files = 64");
    let config = format!("[kinds.k]\ncommand = [\"sh\", \"-c\", \"{worker}; :\"]\n{settings}\n");
    let Some(mut server) = start_with_landlock(&config) else { return };
    let mut client = server.client().await;
    client.execute(query(&json!({"steps": [{"complete": 1}]}))).await;
    let all = eventually("both shells and both workers", || Some(server.worker_pids()).filter(|all| all.len() == 4));
    server.signal(Signal::SIGKILL);
    server.wait();
    eventually("all of them to die", || all.iter().all(|pid| !alive(*pid)).then_some(()));
}
