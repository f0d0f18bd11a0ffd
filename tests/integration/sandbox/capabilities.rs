//! A server that is not root, with no more capabilities than the systemd unit tells to give: it can start, stop and clean up
//! after workers of other users, and they get none of its capabilities.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{
    DAEMON, NOBODY, Server, alive, eventually, guardian_of, is_root, public_copy, public_dir, query, send_signal, skip,
};

/// An empty set of capabilities.
const NONE: &str = "0000000000000000";

/// The value of a setting that is commented out in the unit.
fn in_the_unit(key: &str) -> String {
    let unit = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/remuda.service")).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("#{key}=")));
    line.unwrap_or_else(|| panic!("nothing to uncomment for {key}")).to_owned()
}

/// Runs what follows as another plain user with these capabilities and no way to get others, as systemd does.
fn with_capabilities(names: &str) -> Command {
    let names: Vec<String> = names.split(' ').map(|name| name.replace("CAP_", "+").to_lowercase()).collect();
    let (names, mut command) = (names.join(","), Command::new("setpriv"));
    command.args(["--reuid", &DAEMON.to_string(), "--regid", &DAEMON.to_string(), "--clear-groups", "--no-new-privs"]);
    for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.arg(set).arg(format!("-all,{names}"));
    }
    command
}

/// The sets of capabilities of a process, by name.
fn capabilities(pid: u32) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let sets = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];
    let of = |set: &str| status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim().to_owned();
    sets.iter().map(|set| of(set)).collect()
}

#[tokio::test]
async fn plain_user_with_the_units_capabilities_serves_with_workers_of_another() {
    if !is_root() {
        return;
    }
    if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("setpriv");
    }
    assert_eq!(in_the_unit("CapabilityBoundingSet"), in_the_unit("AmbientCapabilities"));
    let (programs, run) = (public_dir(), public_dir());
    std::os::unix::fs::chown(run.path(), Some(DAEMON), Some(DAEMON)).unwrap();
    let mode = u32::from_str_radix(&in_the_unit("RuntimeDirectoryMode"), 8).unwrap();
    fs::set_permissions(run.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    let [remuda, worker] = [env!("CARGO_BIN_EXE_remuda"), env!("CARGO_BIN_EXE_fake-worker")]
        .map(|program| public_copy(program, &programs));
    let kind = |name: &str, settings: &str| {
        format!(
            "[kinds.{name}]\ncommand = [{worker:?}]\ntypes = [{name:?}]\n{settings}\nmin = 1\nterm_grace = \"200ms\"\n"
        )
    };
    let kinds = kind("other", "user = \"nobody\"\ndir = \"private\"")
        + &kind("group", "group = \"nogroup\"\ndir = \"private\"")
        + &kind("own", "no_new_privs = false");
    let server = Server::start_by(&kinds, |_, file| {
        let config = programs.path().join("remuda.toml");
        fs::copy(file, &config).unwrap();
        let mut command = with_capabilities(&in_the_unit("AmbientCapabilities"));
        command.arg(&remuda).args(["serve", "--config"]).arg(config);
        command.env("REMUDA__POOL__SOCKET_DIR", run.path()).env_remove("REMUDA_CONFIG");
        command
    });
    assert!(capabilities(server.pid()).iter().all(|set| set != NONE), "the server has them");
    let kill = format!("{:016x}", 1 << 5);
    eventually("the guardian to give up all but signalling", || {
        (capabilities(guardian_of(server.pid())) == [NONE, &kill, &kill, NONE]).then_some(())
    });
    let mut client = server.client().await;
    let mut directories = Vec::new();
    for (name, user) in [("other", NOBODY), ("group", DAEMON), ("own", DAEMON)] {
        let mut asked = query(&json!({"steps": ["env"]}));
        asked.r#type = name.to_owned();
        let seen: Value = client.execute(asked).await.result();
        let pid = u32::try_from(seen["pid"].as_u64().unwrap()).unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains(&format!("\nUid:\t{user}\t{user}\t{user}\t{user}\n")), "{name}: {status}");
        assert_eq!(capabilities(pid), [NONE; 4], "{name}");
        if name != "own" {
            let directory = seen["cwd"].as_str().unwrap().to_owned();
            let mut asked = query(&json!({"steps": [{"try": {"write": format!("{directory}/mine")}}]}));
            asked.r#type = name.to_owned();
            client.execute(asked).await;
            assert!(fs::exists(format!("{directory}/mine")).unwrap(), "{name}");
            directories.push(directory);
        }
    }
    let workers = server.worker_pids();
    assert_eq!(workers.len(), 3);
    // They do not end by themselves, so each must be killed, whose it may be.
    for pid in &workers {
        send_signal(*pid, nix::sys::signal::Signal::SIGSTOP);
    }
    assert_eq!(server.stop_cleanly().code(), Some(0));
    eventually("the workers to end", || workers.iter().all(|pid| !alive(*pid)).then_some(()));
    assert!(directories.iter().all(|directory| !fs::exists(directory).unwrap()), "{directories:?}");
}
