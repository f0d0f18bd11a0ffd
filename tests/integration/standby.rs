//! The launcher that is started ahead of time: what comes of it is a worker like any other, and it leaves no trace.

use std::{collections::BTreeMap, fs, path::Path};

use nix::sys::signal::Signal;
use remuda::api::proto::Query;
use serde_json::{Value, json};

use crate::{
    harness::{Client, Server, alive, eventually, fake_kind, guardian_of, query, send_signal, standby_of, zombies_of},
    integration::sandbox::confinement::kernel_has_landlock,
};

fn standby(server: &Server) -> u32 {
    eventually("a launcher to stand by", || standby_of(server.pid()))
}

async fn surroundings(client: &mut Client) -> Value {
    client.execute(query(&json!({"steps": ["env"]}))).await.result()
}

/// Kills a process of the server's and waits until the server knows.
fn kill(pid: u32) {
    send_signal(pid, Signal::SIGKILL);
    eventually("the process to be reaped", || (!fs::exists(format!("/proc/{pid}")).unwrap()).then_some(()));
}

fn pid_in(seen: &Value) -> u32 {
    seen["pid"].as_u64().unwrap().try_into().unwrap()
}

/// All that must be the same for two workers of a kind, as they and the kernel tell it.
fn circumstances(seen: &Value) -> BTreeMap<String, String> {
    let pid = pid_in(seen).to_string();
    let id = seen["env"]["REMUDA_WORKER_ID"].as_str().unwrap();
    // The socket and the directory are called by the worker's number, and pipes and sockets by numbers of their own.
    let anonymous = |value: &Value| {
        let text = value.to_string().replace(&format!("\"{pid}\""), "PID");
        text.replace(&format!("/{id}\""), "/ID\"").replace(&format!("/w{id}\""), "/wID\"")
    };
    let mut told: BTreeMap<String, String> =
        ["cwd", "args", "ppid", "uid", "gid"].map(|name| (name.to_owned(), anonymous(&seen[name]))).into();
    assert_eq!(seen["pid"], seen["pgid"]);
    for (name, value) in seen["env"].as_object().unwrap() {
        let is_id = name == "REMUDA_WORKER_ID";
        told.insert(format!("${name}"), if is_id { "ID".to_owned() } else { anonymous(value) });
    }
    for (number, target) in seen["fds"].as_object().unwrap() {
        let target = target.as_str().unwrap();
        told.insert(format!("descriptor {number}"), target.split(":[").next().unwrap().to_owned());
    }
    for file in ["limits", "oom_score_adj", "cgroup"] {
        told.insert(file.to_owned(), fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap());
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let same = ["Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "PPid"];
    let is_same = |name: &str| same.contains(&name) || name.starts_with("Cap") || name.starts_with("Sig");
    for (name, value) in status.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| is_same(name)) {
        // What is pending may change at any time.
        if name != "SigQ" {
            told.insert(name.to_owned(), value.trim().to_owned());
        }
    }
    let session = status.lines().find_map(|line| line.strip_prefix("NSsid:")).unwrap();
    assert_eq!(session.split_whitespace().next(), Some(pid.as_str()), "it leads its own session");
    told
}

#[tokio::test]
async fn a_worker_that_was_launched_ahead_of_time_is_as_one_that_was_not() {
    let programs = Path::new(env!("CARGO_BIN_EXE_fake-worker")).parent().unwrap().display().to_string();
    let landlock = if kernel_has_landlock() { format!("landlock_read = [{programs:?}]") } else { String::new() };
    let settings = format!(
        "min = 1\nmax = 1\ndir = \"private\"\nenv = {{ MODE = \"fast\" }}\npass_env = [\"PASSED\"]\n\
         max_open_files = 64\nmax_cpu_time = \"1h\"\n{landlock}"
    );
    for (arguments, transport) in [(&[][..], "socket"), (&["--stdio"][..], "stdio")] {
        let settings = format!("transport = {transport:?}\n{settings}");
        let server = Server::start_with(&fake_kind("k", arguments, &settings), |command| {
            command.env("SECRET", "hush").env("PASSED", "yes");
        });
        let mut client = server.client().await;
        let first = surroundings(&mut client).await;
        let before = circumstances(&first);
        assert_eq!(before["$PASSED"], "\"yes\"");
        let ahead = standby(&server);
        kill(pid_in(&first));
        let second = surroundings(&mut client).await;
        assert_eq!(pid_in(&second), ahead, "the standby has become the worker");
        assert_eq!(circumstances(&second), before);
        // The next one stands by, and nobody takes it for a worker.
        assert_ne!(standby(&server), ahead);
        assert_eq!(server.worker_pids(), [ahead]);
        assert_eq!(client.workers().await.len(), 1);
    }
}

#[tokio::test]
async fn a_killed_standby_is_reaped_and_the_next_worker_starts_without_it() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    let first = pid_in(&surroundings(&mut client).await);
    let dead = standby(&server);
    kill(dead);
    kill(first);
    let second = pid_in(&surroundings(&mut client).await);
    assert!(second != first && second != dead);
    // That start was over, so there is another.
    let next = standby(&server);
    kill(second);
    assert_eq!(pid_in(&surroundings(&mut client).await), next);
    assert_eq!(zombies_of(server.pid()), Vec::<u32>::new());
}

#[tokio::test]
async fn a_standby_that_dies_at_the_last_moment_takes_no_worker_with_it() {
    let server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
    let mut client = server.client().await;
    for _ in 0..10 {
        let worker = pid_in(&surroundings(&mut client).await);
        let standby = standby(&server);
        // Dead, but perhaps not known to be: both deaths are seen at about the same time.
        send_signal(standby, Signal::SIGKILL);
        kill(worker);
    }
    surroundings(&mut client).await;
    assert_eq!(zombies_of(server.pid()), Vec::<u32>::new());
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn the_standby_and_what_came_of_one_end_with_the_server_however_that_ends() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut server = Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"));
        let mut client = server.client().await;
        let first = pid_in(&surroundings(&mut client).await);
        let worker = standby(&server);
        kill(first);
        assert_eq!(pid_in(&surroundings(&mut client).await), worker);
        let standby = standby(&server);
        // Without the guardian only the kernel is left to see to it.
        send_signal(guardian_of(server.pid()), Signal::SIGKILL);
        server.signal(signal);
        server.wait();
        eventually("both to end", || (!alive(standby) && !alive(worker)).then_some(()));
    }
}

#[tokio::test]
async fn what_a_standby_could_not_execute_is_told_as_ever() {
    let missing = "[kinds.missing]\ncommand = [\"/no/such/program\"]\nmin = 0\n";
    let server = Server::start(&format!("{}{missing}", fake_kind("k", &[], "min = 1\nmax = 1")));
    let mut client = server.client().await;
    let ahead = standby(&server);
    let id = client.submit(Query { kind: "missing".to_owned(), ..query(&json!(1)) }).await.unwrap();
    let told = server.logs("the command \\\"/no/such/program\\\" was not found");
    assert!(told.contains(&format!("\"pid\":{ahead}")), "it was the standby that tried: {told}");
    client.cancel(&id, "").await.unwrap();
}

#[tokio::test]
async fn a_worker_with_too_large_an_environment_for_a_standby_is_started_without_it() {
    let large = "x".repeat(100_000);
    let server = Server::start(&fake_kind("k", &[], &format!("min = 1\nmax = 1\nenv = {{ LARGE = {large:?} }}")));
    let mut client = server.client().await;
    let first = surroundings(&mut client).await;
    let waiting = standby(&server);
    kill(pid_in(&first));
    let second = surroundings(&mut client).await;
    assert_eq!(second["env"]["LARGE"], json!(large));
    assert_ne!(pid_in(&second), pid_in(&first));
    assert_eq!(standby(&server), waiting);
}
