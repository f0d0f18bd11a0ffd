//! The register of the server's own children. Where the server inherits other processes, as the first process of a
//! container does, it reaps those.

use std::{
    collections::HashSet,
    fs, io,
    process::{Child, Command},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use tracing::debug;

/// Longest time that an orphan stays unreaped.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Processes that the server has started itself and not reaped yet.
#[derive(Debug, Default)]
pub(in crate::worker) struct ChildRegistry {
    own: Mutex<HashSet<i32>>,
}

/// A child of the server, reaped by the holder of this value.
#[derive(Debug)]
pub(in crate::worker) struct RegisteredChild {
    pub child: Child,
    _registration: Registration,
}

/// Removes the child from the register when dropped, which is after the child was reaped.
#[derive(Debug)]
struct Registration {
    pid: i32,
    children: Arc<ChildRegistry>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.children.own.lock().remove(&self.pid);
    }
}

impl ChildRegistry {
    /// Starts reaping orphans, if the server inherits any, for as long as the registry lives.
    pub(in crate::worker) fn new() -> io::Result<Arc<Self>> {
        let children = Arc::new(Self::default());
        if inherits_orphans() {
            let children = Arc::downgrade(&children);
            thread::Builder::new().name("remuda-orphans".to_owned()).spawn(move || reap_periodically(&children))?;
        }
        Ok(children)
    }

    /// Starts a child under the lock, so that it is registered before anyone looks for orphans.
    pub(in crate::worker) fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<RegisteredChild> {
        let mut own = self.own.lock();
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        own.insert(pid);
        Ok(RegisteredChild { child, _registration: Registration { pid, children: self.clone() } })
    }

    /// Reaps those of `children` that have ended and are not registered.
    fn reap_orphans(&self, children: impl Iterator<Item = i32>) {
        let own = self.own.lock();
        for pid in children.filter(|pid| !own.contains(pid)).filter_map(Pid::from_raw) {
            let reaped = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            if let Ok(Some(_)) = reaped {
                debug!(pid = pid.as_raw_pid(), "reaped an orphan");
            }
        }
    }
}

fn reap_periodically(children: &Weak<ChildRegistry>) {
    while let Some(children) = children.upgrade() {
        children.reap_orphans(children_of(getpid().as_raw_pid()));
        drop(children);
        thread::sleep(REAP_INTERVAL);
    }
}

/// True for the first process of a pid namespace, and for a subreaper.
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
    // The name stands in parentheses and may contain anything; the parent is the second field after it.
    stat.get(stat.rfind(')')? + 2..)?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_are_reaped_and_registered_children_are_not() {
        let children = Arc::new(ChildRegistry::default());
        let mut own = children.spawn(&mut Command::new("true")).unwrap();
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
