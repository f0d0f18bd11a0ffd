//! The guardian: a process beside the server that outlives it for a moment, to kill what its workers have started.
//!
//! The parent-death signal reaches only a worker itself. A worker that is a shell script, or has children of its own,
//! would leave those behind when the server is killed. The guardian knows every worker's process group from lines that
//! the server writes to its stdin (`+123` and `-123`), and when that ends it kills the groups that are left.

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
    orphans::{Children, OwnChild},
};

/// The first argument that turns our binary into the guardian.
pub const GUARD_ARGUMENT: &str = "__guard";

/// How long the server waits for it at the end.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The server's side.
#[derive(Debug)]
pub(super) struct Guardian {
    lines: Mutex<Option<PipeWriter>>,
    child: Mutex<OwnChild>,
}

/// A process group that ends with the server for as long as this lives. To be dropped before its leader is reaped, after which
/// the group's id may become another's.
#[derive(Debug)]
pub(super) struct Guarded {
    guardian: Arc<Guardian>,
    group: u32,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.guardian.tell(&format!("-{}\n", self.group));
    }
}

/// Runs the guardian until its stdin ends.
#[must_use]
pub fn guard() -> ExitCode {
    // A signal to the server's whole group, such as Ctrl-C in a terminal, must not reach us: the server has use for us
    // until its last worker is gone.
    let _ = setsid();
    // Workers may belong to other users; nothing else takes rights.
    let _ = capabilities::keep_kill();
    // Nor must a worker of the same user get hold of us.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for group in left_over(io::stdin().lock()) {
        if let Some(group) = Pid::from_raw(group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    ExitCode::SUCCESS
}

/// The groups that were announced and not taken back.
fn left_over(lines: impl BufRead) -> BTreeSet<i32> {
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
    pub(super) fn start(binary: &Path, children: &Arc<Children>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(binary);
        command.arg(GUARD_ARGUMENT).env_clear().current_dir("/");
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: Mutex::new(children.start(&mut command)?), lines: Mutex::new(Some(writer)) })
    }

    pub(super) fn watch(self: &Arc<Self>, group: u32) -> Guarded {
        self.tell(&format!("+{group}\n"));
        Guarded { guardian: self.clone(), group }
    }

    fn tell(&self, line: &str) {
        if let Some(writer) = &mut *self.lines.lock() {
            // Short lines, read at once: the pipe never fills. Without a guardian the parent-death signal remains.
            let _ = writer.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The end of its stdin is what it waits for; it then ends at once, unless someone has stopped it.
        *self.lines.lock() = None;
        let child = &mut self.child.lock().child;
        let deadline = Instant::now() + LAST_WAIT;
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
    fn only_groups_that_were_not_taken_back_are_left() {
        let lines = "+10\n+20\n-10\nnonsense\n\n+x\n+30\n-40\n";
        assert_eq!(left_over(lines.as_bytes()), BTreeSet::from([20, 30]));
    }
}
