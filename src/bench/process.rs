//! The only place where the load generator starts processes, and where it kills workers.

use std::{
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use tokio::time::sleep;

/// Between two looks whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A process that does not outlive this.
#[derive(Debug)]
pub(super) struct Started(Child);

/// What became of the attempt to kill a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    Killed,
    /// It had ended by then.
    Gone,
    /// There is such a process, but it is not that worker.
    Stranger,
}

impl Started {
    /// Starts our own program with nothing in its environment but `environment`, in a process group of its own, so that Ctrl-C
    /// is for us alone.
    pub(super) fn new(program: &Path, arguments: &[&OsStr], environment: &[(&str, &OsStr)]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.iter().copied()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map(Self)
    }

    /// The lines it writes to standard error; to be called once.
    pub(super) fn log(&mut self) -> impl Iterator<Item = String> + Send + use<> {
        self.0.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok))
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to stop, and waits so long for it; after that it is killed.
    pub(super) async fn stop(mut self, patience: Duration) {
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It is our child and not reaped, so this is its pid and nobody else's.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this process of this machine is that worker.
pub(super) fn is_worker(pid: u32, worker_id: u64) -> bool {
    let mark = format!("REMUDA_WORKER_ID={worker_id}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
}

/// Kills a worker with SIGKILL.
pub(super) fn kill_worker(pid: u32, worker_id: u64) -> io::Result<Kill> {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(Kill::Gone) };
    // Held from before the look, so that what is killed is what was looked at.
    let handle = match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(Kill::Gone),
        handle => handle?,
    };
    if !is_worker(pid, worker_id) {
        return Ok(Kill::Stranger);
    }
    match pidfd_send_signal(handle, Signal::KILL) {
        Err(Errno::SRCH) => Ok(Kill::Gone),
        sent => sent.map(|()| Kill::Killed).map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_is_killed() {
        let own = std::process::id();
        assert!(!is_worker(own, 1));
        assert_eq!(kill_worker(own, 1).unwrap(), Kill::Stranger);
        assert_eq!(kill_worker(0, 1).unwrap(), Kill::Gone);
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id();
        ended.wait().unwrap();
        assert_eq!(kill_worker(pid, 1).unwrap(), Kill::Gone);
    }

    #[test]
    fn worker_is_known_by_its_number() {
        let mut worker = Command::new("sleep").arg("600").env("REMUDA_WORKER_ID", "7").spawn().unwrap();
        // Until it has become that program, its environment is ours.
        while !is_worker(worker.id(), 7) {
            std::thread::yield_now();
        }
        assert_eq!(kill_worker(worker.id(), 77).unwrap(), Kill::Stranger);
        assert_eq!(kill_worker(worker.id(), 7).unwrap(), Kill::Killed);
        assert!(!worker.wait().unwrap().success());
    }
}
