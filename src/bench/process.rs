//! Processes of the load generator: starts its own, and kills workers.

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

/// Interval of checks that a process has ended.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A child process, killed when this is dropped.
#[derive(Debug)]
pub(super) struct ChildProcess(Child);

/// The result of an attempt to kill a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillOutcome {
    Killed,
    /// The process had ended already.
    Gone,
    /// The process is not that worker.
    NotTheWorker,
}

impl ChildProcess {
    /// Starts a program with only `environment`, in its own process group, so that Ctrl-C does not reach it.
    pub(super) fn start(program: &Path, arguments: &[&OsStr], environment: &[(&str, &OsStr)]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.iter().copied()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map(Self)
    }

    /// The lines of its standard error; to be called once.
    pub(super) fn stderr_lines(&mut self) -> impl Iterator<Item = String> + Send + use<> {
        self.0.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok))
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, waits for the exit up to `limit`, and kills the process after that.
    pub(super) async fn stop(mut self, limit: Duration) {
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // A child that is not reaped keeps its pid, so the signal reaches no other process.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(EXIT_POLL_INTERVAL).await;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if this process of this machine is that worker.
pub(super) fn is_worker(pid: u32, worker_id: u64) -> bool {
    let variable = format!("REMUDA_WORKER_ID={worker_id}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
}

/// Kills a worker with SIGKILL.
pub(super) fn kill_worker(pid: u32, worker_id: u64) -> io::Result<KillOutcome> {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(KillOutcome::Gone) };
    // Opened before the check, so that the process that is checked is the one that is killed.
    let handle = match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(KillOutcome::Gone),
        handle => handle?,
    };
    if !is_worker(pid, worker_id) {
        return Ok(KillOutcome::NotTheWorker);
    }
    match pidfd_send_signal(handle, Signal::KILL) {
        Err(Errno::SRCH) => Ok(KillOutcome::Gone),
        sent => sent.map(|()| KillOutcome::Killed).map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_is_no_worker_is_not_killed() {
        let own = std::process::id();
        assert!(!is_worker(own, 1));
        assert_eq!(kill_worker(own, 1).unwrap(), KillOutcome::NotTheWorker);
        assert_eq!(kill_worker(0, 1).unwrap(), KillOutcome::Gone);
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id();
        ended.wait().unwrap();
        assert_eq!(kill_worker(pid, 1).unwrap(), KillOutcome::Gone);
    }

    #[test]
    fn worker_is_known_by_its_id() {
        let mut worker = Command::new("sleep").arg("600").env("REMUDA_WORKER_ID", "7").spawn().unwrap();
        // Until the exec, its environment is that of this process.
        while !is_worker(worker.id(), 7) {
            std::thread::yield_now();
        }
        assert_eq!(kill_worker(worker.id(), 77).unwrap(), KillOutcome::NotTheWorker);
        assert_eq!(kill_worker(worker.id(), 7).unwrap(), KillOutcome::Killed);
        assert!(!worker.wait().unwrap().success());
    }
}
