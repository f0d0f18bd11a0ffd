//! The guardian: a process beside the server that outlives it for a moment, to kill what its workers have started.
//!
//! The parent-death signal reaches only a worker itself. A worker that is a shell script, or has children of its own,
//! would leave those behind when the server is killed. The guardian learns every worker's process group from lines that
//! the server writes to its stdin (`+123` and `-123`), and kills the remaining groups at end of file.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, PipeWriter, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process_group, set_dumpable_behavior, setsid};

use super::{
    capabilities,
    orphans::{ChildRegistry, RegisteredChild},
};

/// First argument that selects the guardian.
pub const GUARD_ARGUMENT: &str = "__guard";

/// Time that the server waits for the guardian's exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The server's handle of the guardian.
#[derive(Debug)]
pub(in crate::worker) struct Guardian {
    lines: Mutex<Option<PipeWriter>>,
    child: Mutex<RegisteredChild>,
}

/// A process group that ends with the server while this value lives. To be dropped before the group's leader is reaped,
/// after which another group may get its id.
#[derive(Debug)]
pub(in crate::worker) struct GuardedGroup {
    guardian: Arc<Guardian>,
    group: u32,
}

impl Drop for GuardedGroup {
    fn drop(&mut self) {
        self.guardian.write(&format!("-{}\n", self.group));
    }
}

/// Runs the guardian until its stdin ends.
#[must_use]
pub fn run_guardian() -> ExitCode {
    // A signal to the server's whole group, such as Ctrl-C in a terminal, must not end us: the server needs us until its
    // last worker is gone.
    let _ = setsid();
    // Workers may belong to other users; no other right is needed.
    let _ = capabilities::retain_kill();
    // Keeps workers of the same user from tracing us.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for group in remaining_groups(io::stdin().lock()) {
        if let Some(group) = Pid::from_raw(group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    ExitCode::SUCCESS
}

/// The groups that were added and not removed.
fn remaining_groups(lines: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in lines.lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", group)) => groups.extend(group.parse::<i32>().ok()),
            Some(("-", group)) => {
                let _ = group.parse().map(|group: i32| groups.remove(&group));
            }
            _ => {}
        }
    }
    groups
}

impl Guardian {
    pub(in crate::worker) fn start(binary: &Path, children: &Arc<ChildRegistry>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(binary);
        command.arg(GUARD_ARGUMENT).env_clear().current_dir("/");
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: Mutex::new(children.spawn(&mut command)?), lines: Mutex::new(Some(writer)) })
    }

    pub(in crate::worker) fn watch(self: &Arc<Self>, group: u32) -> GuardedGroup {
        self.write(&format!("+{group}\n"));
        GuardedGroup { guardian: self.clone(), group }
    }

    fn write(&self, line: &str) {
        if let Some(writer) = &mut *self.lines.lock() {
            // Short lines, read at once: the pipe never fills. Without a guardian the parent-death signal remains.
            let _ = writer.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // End of file makes it exit at once, unless someone has stopped it.
        *self.lines.lock() = None;
        let child = &mut self.child.lock().child;
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_groups_are_those_added_and_not_removed() {
        let lines = "+10\n+20\n-10\nnonsense\n\n+x\n+30\n-40\n";
        assert_eq!(remaining_groups(lines.as_bytes()), BTreeSet::from([20, 30]));
    }
}
