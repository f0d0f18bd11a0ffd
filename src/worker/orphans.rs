//! Which processes are the server's own children; where the server is the first process of a container, the others
//! that it inherits are reaped.

use std::{
    collections::HashSet,
    fs, io,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use tracing::debug;

/// How long an orphan stays unreaped at most.
const ROUND: Duration = Duration::from_secs(1);

/// The processes that the server has started itself and not reaped yet.
#[derive(Debug, Default)]
pub(super) struct Children {
    own: Mutex<HashSet<i32>>,
}

/// A child of the server's own. Whoever has it reaps it.
#[derive(Debug)]
pub(super) struct OwnChild {
    pub child: Child,
    _known: Known,
}

/// Forgotten when dropped, which is after the child was reaped.
#[derive(Debug)]
struct Known {
    pid: i32,
    children: Arc<Children>,
}

impl OwnChild {
    /// Reaps it.
    pub(super) fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.children.own.lock().remove(&self.pid);
    }
}

impl Children {
    /// If the server inherits orphans, they are reaped from now on, for as long as anyone holds what this returns.
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let children = Arc::new(Self::default());
        if inherits_orphans() {
            let children = Arc::downgrade(&children);
            thread::Builder::new().name("remuda-orphans".to_owned()).spawn(move || reap_on(&children))?;
        }
        Ok(children)
    }

    /// Starts a child that is known as the server's own before anyone can look for orphans.
    pub(super) fn start(self: &Arc<Self>, command: &mut Command) -> io::Result<OwnChild> {
        let mut own = self.own.lock();
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        own.insert(pid);
        Ok(OwnChild { child, _known: Known { pid, children: self.clone() } })
    }

    /// Reaps those of our children that have ended and are not the server's own.
    fn reap_orphans(&self, ours: impl Iterator<Item = i32>) {
        let own = self.own.lock();
        for pid in ours.filter(|pid| !own.contains(pid)).filter_map(Pid::from_raw) {
            let reaped = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            if let Ok(Some(_)) = reaped {
                debug!(pid = pid.as_raw_pid(), "reaped an orphan");
            }
        }
    }
}

fn reap_on(children: &Weak<Children>) {
    while let Some(children) = children.upgrade() {
        children.reap_orphans(children_of(getpid().as_raw_pid()));
        drop(children);
        thread::sleep(ROUND);
    }
}

/// As the first process of a pid namespace, or because someone made us a subreaper.
fn inherits_orphans() -> bool {
    getpid().is_init() || nix::sys::prctl::get_child_subreaper().unwrap_or(false)
}

fn children_of(parent: i32) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(move |pid| parent_of(*pid) == Some(parent))
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; the parent is the second field after it.
    stat.get(stat.rfind(')')? + 2..)?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_that_nobody_knows_are_reaped() {
        let children = Arc::new(Children::default());
        let mut own = children.start(&mut Command::new("true")).unwrap();
        let mut foreign = Command::new("true").spawn().unwrap();
        let pids = [own.child.id(), foreign.id()].map(u32::cast_signed);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while parent_of(pids[1]).is_some() {
            children.reap_orphans(pids.into_iter());
            assert!(std::time::Instant::now() < deadline, "the foreign child was not reaped");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(foreign.wait().is_err(), "there is nothing left to wait for");
        assert!(own.child.wait().unwrap().success(), "its status was left for its owner");
        drop(own);
        assert!(children.own.lock().is_empty());
    }
}
