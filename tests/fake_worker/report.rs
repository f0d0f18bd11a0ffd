//! The worker's report about itself.

use std::{env, fs, process};

use rustix::process::{getgid, getpgrp, getppid, getuid};
use serde_json::{Map, Value, json};

/// All that the worker was started with.
pub(crate) fn surroundings() -> Value {
    let environment: Map<String, Value> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into()))
        .collect();
    json!({
        "env": environment,
        "cwd": env::current_dir().ok(),
        "args": env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "pid": process::id(),
        "ppid": getppid().map(rustix::process::Pid::as_raw_pid),
        "pgid": getpgrp().as_raw_pid(),
        "uid": getuid().as_raw(),
        "gid": getgid().as_raw(),
        "fds": descriptors(),
    })
}

pub(crate) fn worker_id() -> Value {
    let id = env::var("REMUDA_WORKER_ID").unwrap_or_default();
    id.parse::<u64>().map_or(Value::from(id), Value::from)
}

/// The resident set in bytes.
pub(crate) fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// The open descriptors and what they are open to, but for the one that lists them.
fn descriptors() -> Map<String, Value> {
    let listing = format!("/proc/{}/fd", process::id());
    let entries = fs::read_dir(&listing).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name(), fs::read_link(entry.path()).ok()?)))
        .map(|(number, target)| (number.to_string_lossy().into_owned(), target.to_string_lossy().into_owned()))
        .filter(|(_, target)| *target != listing)
        .map(|(number, target)| (number, target.into()))
        .collect()
}
