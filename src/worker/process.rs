//! The only place that starts, signals and reaps worker processes.

use std::{
    future::poll_fn,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use tokio::{
    io::unix::AsyncFd,
    net::unix::pipe,
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{model::Exit, system};

use super::{
    sandbox::{ChildRegistry, GuardedGroup, Guardian, LAUNCH_ARGUMENT, LaunchPlan, RegisteredChild},
    usage::UsageReading,
};

/// Time that a process may take to vanish after SIGKILL. Longer means that the kernel holds it in a system call.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts processes, all from one thread that lives as long as the server: the parent-death signal of a child is tied
/// to the thread that started it.
#[derive(Debug, Clone)]
pub struct Spawner {
    jobs: mpsc::Sender<SpawnJob>,
    launcher: PathBuf,
    guardian: Arc<Guardian>,
}

struct SpawnJob {
    command: Command,
    reply: oneshot::Sender<io::Result<RegisteredChild>>,
}

/// Everything that a process is started with.
#[derive(Debug)]
pub(super) struct SpawnRequest {
    pub plan: LaunchPlan,
    pub environment: Vec<(String, String)>,
    /// The worker's end of the connection, if that is its stdin and stdout.
    pub stdio: Option<StdUnixStream>,
}

/// A worker's process, until it is reaped.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` once it is reaped.
    child: Option<RegisteredChild>,
    pid: Pid,
    exit_watch: AsyncFd<OwnedFd>,
    guarded: Option<GuardedGroup>,
}

/// Our ends of the pipes behind a worker's standard streams.
#[derive(Debug)]
pub(super) struct Pipes {
    /// `None` if its stdout is its connection.
    pub stdout: Option<pipe::Receiver>,
    pub stderr: pipe::Receiver,
}

impl Spawner {
    /// `launcher` is our own binary.
    pub fn new(launcher: PathBuf) -> io::Result<Self> {
        let (jobs, mut inbox) = mpsc::channel::<SpawnJob>(64);
        let children = ChildRegistry::new()?;
        let guardian = Arc::new(Guardian::start(&launcher, &children)?);
        thread::Builder::new().name("remuda-spawn".to_owned()).spawn(move || {
            while let Some(SpawnJob { mut command, reply }) = inbox.blocking_recv() {
                if let Err(Ok(mut orphan)) = reply.send(children.spawn(&mut command)) {
                    // The requester has gone.
                    let _ = orphan.child.kill();
                    let _ = orphan.child.wait();
                }
            }
        })?;
        Ok(Self { jobs, launcher, guardian })
    }

    pub(super) async fn spawn(&self, request: SpawnRequest) -> io::Result<(Process, Pipes)> {
        let (reply, answer) = oneshot::channel();
        let job = SpawnJob { command: self.command(request)?, reply };
        self.jobs.send(job).await.map_err(io::Error::other)?;
        let child = answer.await.map_err(io::Error::other)??;
        let guarded = self.guardian.watch(child.child.id());
        Process::adopt(child, guarded)
    }

    /// Starts our own binary, which sets itself up and then executes the worker's command (`sandbox::launcher`). No `pre_exec`: with it
    /// the standard library forks instead of calling `posix_spawn`, which takes 94 ms instead of 0.2 ms in a server of 2 GiB.
    fn command(&self, request: SpawnRequest) -> io::Result<Command> {
        let mut command = Command::new(&self.launcher);
        command.arg(LAUNCH_ARGUMENT).arg(serde_json::to_string(&request.plan)?);
        command.env_clear().envs(request.environment);
        match request.stdio {
            Some(stream) => command.stdin(OwnedFd::from(stream.try_clone()?)).stdout(OwnedFd::from(stream)),
            None => command.stdin(Stdio::null()).stdout(Stdio::piped()),
        };
        command.stderr(Stdio::piped());
        Ok(command)
    }
}

impl Process {
    fn adopt(mut own: RegisteredChild, guarded: GuardedGroup) -> io::Result<(Self, Pipes)> {
        let child = &mut own.child;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take().expect("stderr is piped"));
        let pid = Pid::from_child(child);
        let watch = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(system::watch_readable);
        let exit_watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                signal_group(pid, Signal::KILL);
                drop(guarded);
                let _ = child.wait();
                return Err(error);
            }
        };
        let process = Self { child: Some(own), pid, exit_watch, guarded: Some(guarded) };
        let stdout = stdout.map(|pipe| pipe::Receiver::from_owned_fd(pipe.into())).transpose()?;
        let stderr = pipe::Receiver::from_owned_fd(stderr.into())?;
        Ok((process, Pipes { stdout, stderr }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// True if this process belongs to the worker's process group.
    pub(super) fn has_member(&self, pid: i32) -> bool {
        // Not rustix's call: a group whose leader is outside our pid namespace reads as 0, which its type cannot hold.
        let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid)));
        pid > 0 && group.is_ok_and(|group| group.as_raw() == self.pid.as_raw_pid())
    }

    /// Waits for the process to end without reaping it, so that its id is not reused.
    pub(super) async fn wait_for_exit(&self) {
        // Only the end of the runtime can cause an error.
        let _ = poll_fn(|context| self.exit_watch.poll_read_ready(context).map_ok(drop)).await;
    }

    /// Sends SIGTERM to the whole group.
    pub(super) fn terminate(&self) {
        signal_group(self.pid, Signal::TERM);
    }

    /// Kills the whole group and reaps the process.
    pub(super) async fn kill_and_reap(&mut self) -> Exit {
        let Some(RegisteredChild { child, .. }) = &mut self.child else { return Exit::Unknown };
        // The process is not reaped yet, so no other group can have its id.
        signal_group(self.pid, Signal::KILL);
        if timeout(KILL_TIMEOUT, self.exit_watch.readable()).await.is_err() {
            return Exit::Unknown;
        }
        self.guarded = None;
        let exit = child.wait().into();
        self.child = None;
        exit
    }

    /// Its use of the machine; `None` if it has ended.
    pub(super) fn read_usage(&self) -> Option<UsageReading> {
        UsageReading::of(self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(own) = self.child.take() {
            signal_group(self.pid, Signal::KILL);
            self.guarded = None;
            // Only after a panic or for an unkillable process; the wait may block, so it gets a thread. The child stays
            // registered until then, or the reaping of orphans could take its exit.
            let reap = move || {
                let mut own = own;
                own.child.wait()
            };
            let _ = thread::Builder::new().name("remuda-reap".to_owned()).spawn(reap);
        }
    }
}

/// Signals a worker's whole group, or the process alone while the launcher has not made it a group's leader yet.
fn signal_group(leader: Pid, signal: Signal) {
    if kill_process_group(leader, signal).is_err() && kill_process(leader, signal).is_ok() {
        // It may have become a leader in between, and have started children.
        let _ = kill_process_group(leader, signal);
    }
}
