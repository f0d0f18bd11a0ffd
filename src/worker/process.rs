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

use crate::{config::Confinement, model::Exit, system};

use super::{
    guard::Guardian,
    launch::{LAUNCH_ARGUMENT, LaunchPlan},
    orphans::{Children, OwnChild},
    usage::Reading,
};

/// How long a process may take to vanish after SIGKILL. Longer means that the kernel holds it in a system call.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Starts processes, all from one thread that lives as long as the server: the parent-death signal of a child is tied
/// to the thread that started it.
#[derive(Debug, Clone)]
pub struct Spawner {
    requests: mpsc::Sender<Request>,
    launcher: PathBuf,
    guardian: Arc<Guardian>,
}

struct Request {
    command: Command,
    reply: oneshot::Sender<io::Result<OwnChild>>,
}

/// What a process is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub command: Vec<String>,
    pub directory: Option<String>,
    /// Whether the directory is this worker's alone.
    pub private: bool,
    pub user: Option<String>,
    pub group: Option<String>,
    pub confinement: Confinement,
    pub environment: Vec<(String, String)>,
    /// The worker's end of the connection, if it is to be its stdin and stdout.
    pub stdio: Option<StdUnixStream>,
}

/// A worker's process, until it is reaped.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` once it is reaped.
    child: Option<OwnChild>,
    pid: Pid,
    exit_watch: AsyncFd<OwnedFd>,
    guardian: Arc<Guardian>,
}

/// The pipes to be drained.
#[derive(Debug)]
pub(super) struct Pipes {
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
}

impl Spawner {
    /// `launcher` is our own binary.
    pub fn new(launcher: PathBuf) -> io::Result<Self> {
        let (requests, mut inbox) = mpsc::channel::<Request>(64);
        let children = Children::new()?;
        let guardian = Arc::new(Guardian::start(&launcher, &children)?);
        thread::Builder::new().name("remuda-spawn".to_owned()).spawn(move || {
            while let Some(Request { mut command, reply }) = inbox.blocking_recv() {
                if let Err(Ok(mut orphan)) = reply.send(children.start(&mut command)) {
                    // Nobody waits for it any more.
                    let _ = orphan.child.kill();
                    let _ = orphan.child.wait();
                }
            }
        })?;
        Ok(Self { requests, launcher, guardian })
    }

    pub(super) async fn spawn(&self, start: Start) -> io::Result<(Process, Pipes)> {
        let (reply, answer) = oneshot::channel();
        let request = Request { command: self.command(start)?, reply };
        self.requests.send(request).await.map_err(io::Error::other)?;
        let child = answer.await.map_err(io::Error::other)??;
        Process::adopt(child, self.guardian.clone())
    }

    fn command(&self, start: Start) -> io::Result<Command> {
        let plan = LaunchPlan {
            parent: rustix::process::getpid().as_raw_pid(),
            directory: start.directory,
            private: start.private,
            user: start.user,
            group: start.group,
            confinement: start.confinement,
            command: start.command,
        };
        let mut command = Command::new(&self.launcher);
        command.arg(LAUNCH_ARGUMENT).arg(serde_json::to_string(&plan)?);
        command.env_clear().envs(start.environment);
        command.stderr(Stdio::piped());
        match start.stdio {
            Some(stream) => {
                command.stdin(OwnedFd::from(stream.try_clone()?)).stdout(OwnedFd::from(stream));
            }
            None => {
                command.stdin(Stdio::null()).stdout(Stdio::piped());
            }
        }
        Ok(command)
    }
}

impl Process {
    fn adopt(mut own: OwnChild, guardian: Arc<Guardian>) -> io::Result<(Self, Pipes)> {
        let child = &mut own.child;
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        let pid = Pid::from_child(child);
        let watch = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(system::watch);
        let exit_watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                signal_all(pid, Signal::KILL);
                let _ = child.wait();
                return Err(error);
            }
        };
        guardian.watch(child.id());
        let process = Self { child: Some(own), pid, exit_watch, guardian };
        let pipes = Pipes {
            stdout: stdout.map(pipe::Receiver::from_owned_fd).transpose()?,
            stderr: stderr.map(pipe::Receiver::from_owned_fd).transpose()?,
        };
        Ok((process, pipes))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether another process is in this worker's process group.
    pub(super) fn has_member(&self, pid: i32) -> bool {
        // Not rustix's call: a group that is led from outside our pid namespace reads as 0, which its type cannot hold.
        let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid)));
        pid > 0 && group.is_ok_and(|group| group.as_raw() == self.pid.as_raw_pid())
    }

    /// Resolves when the process has ended. Does not reap it, so that its id stays its own.
    pub(super) async fn ended(&self) {
        // An error would mean that the descriptor is not watched any more, which only the runtime's end can cause.
        let _ = poll_fn(|context| self.exit_watch.poll_read_ready(context).map_ok(drop)).await;
    }

    /// Asks the whole group to end.
    pub(super) fn terminate(&self) {
        signal_all(self.pid, Signal::TERM);
    }

    /// Ends the whole group and reaps the process.
    pub(super) async fn kill_and_reap(&mut self) -> Exit {
        let Some(OwnChild { child, .. }) = &mut self.child else { return Exit::Unknown };
        // The process is not reaped yet, so the group's id cannot belong to anyone else.
        signal_all(self.pid, Signal::KILL);
        if timeout(KILL_WAIT, self.exit_watch.readable()).await.is_err() {
            return Exit::Unknown;
        }
        // Before the reaping, after which the group's id may become another's.
        self.guardian.release(child.id());
        let exit = child.wait().into();
        self.child = None;
        exit
    }

    /// What it uses of the machine; `None` if it has ended.
    pub(super) fn usage(&self) -> Option<Reading> {
        Reading::of(self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(own) = self.child.take() {
            signal_all(self.pid, Signal::KILL);
            self.guardian.release(own.child.id());
            // Only a panic or an unkillable process leads here; the wait may block, so it gets a thread.
            let _ = thread::Builder::new().name("remuda-reap".to_owned()).spawn(move || own.wait());
        }
    }
}

/// Signals a worker's whole group. In its first moments, before the launcher has made it the leader of one, there is
/// only the process itself. Fails only if nobody is left to be signalled.
fn signal_all(leader: Pid, signal: Signal) {
    if kill_process_group(leader, signal).is_err() && kill_process(leader, signal).is_ok() {
        // It may have become the leader in between, and have company already.
        let _ = kill_process_group(leader, signal);
    }
}
