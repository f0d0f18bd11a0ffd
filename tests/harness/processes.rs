//! Processes as `/proc` shows them.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// True while the process exists and is not a zombie.
pub(crate) fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// True while the process is stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state == 'T')
}

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("the process can be signalled");
}

/// All live processes below `pid` other than the server's guardian.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = all_pids().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let current = found[at];
        found.extend(all.iter().filter(|(_, parent)| *parent == current).map(|(pid, _)| *pid));
        at += 1;
    }
    found.into_iter().skip(1).filter(|pid| alive(*pid) && !is_helper(*pid)).collect()
}

/// The server's guardian.
pub(crate) fn guardian_of(server: u32) -> u32 {
    let is_guardian = |pid: &u32| is_called(*pid, "__guard") && stat(*pid).is_some_and(|stat| stat.parent == server);
    all_pids().find(is_guardian).expect("a server has a guardian")
}

/// True for the server's own processes, and for new ones: until it executes its program, a process has the command line of
/// its parent.
fn is_helper(pid: u32) -> bool {
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let parent = stat(pid).map_or_else(Vec::new, |stat| line(stat.parent));
    is_called(pid, "__guard") || (is_servers(&parent) && line(pid) == parent)
}

fn is_called(pid: u32, argument: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(format!("\0{argument}\0").as_bytes()))
}

fn is_servers(command_line: &[u8]) -> bool {
    command_line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
}

/// The children of a process that have ended and that it has not reaped.
pub(crate) fn zombies_of(parent: u32) -> Vec<u32> {
    all_pids().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent && stat.state == 'Z')).collect()
}

/// All live processes of a process group.
pub(crate) fn group_of(leader: u32) -> Vec<u32> {
    all_pids().filter(|pid| alive(*pid) && stat(*pid).is_some_and(|stat| stat.group == leader)).collect()
}

struct Stat {
    state: char,
    parent: u32,
    group: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let rest = &text[text.rfind(')')? + 2..];
    let mut fields = rest.split(' ');
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
