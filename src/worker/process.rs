//! The only place that starts, signals and reaps worker processes.

use std::{
    future::poll_fn,
    io::{self, PipeReader, PipeWriter},
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
use tracing::debug;

use crate::{model::Exit, system};

use super::{
    guard::{Guarded, Guardian},
    launch::{LAUNCH_ARGUMENT, LaunchPlan},
    orphans::{Children, OwnChild},
    standby::{self, Errand, Post, Standby, Watch},
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
    post: Arc<Post>,
}

struct Request {
    command: Command,
    reply: oneshot::Sender<io::Result<OwnChild>>,
}

/// What a process is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub plan: LaunchPlan,
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
    guarded: Option<Guarded>,
}

/// The pipes of what a worker writes to its standard streams. If its stdout is its connection, nothing comes through that one.
#[derive(Debug)]
pub(super) struct Outputs<Pipe> {
    pub stdout: Pipe,
    pub stderr: Pipe,
}

/// One that was started to be a worker, and need not be one yet.
#[derive(Debug)]
pub(super) struct Recruit {
    pub child: OwnChild,
    pub outputs: Ours,
    pub guarded: Guarded,
}

pub(super) type Theirs = Outputs<PipeWriter>;
pub(super) type Ours = Outputs<PipeReader>;
/// To be drained.
pub(super) type Pipes = Outputs<pipe::Receiver>;

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
        Ok(Self { requests, launcher, guardian, post: Arc::default() })
    }

    /// Through the standby, if there is one.
    pub(super) async fn spawn(&self, start: Start) -> io::Result<(Process, Pipes)> {
        let Start { plan, environment, stdio } = start;
        let errand = Errand { plan, environment };
        let recruit = if let Some(sent) = self.send_off(&errand, stdio.as_ref())? {
            sent
        } else {
            let (theirs, ours) = Outputs::pipes()?;
            self.recruit(self.direct(errand, stdio, theirs)?, ours).await?
        };
        Process::adopt(recruit)
    }

    /// Has a launcher stand by for the next worker, unless one does, for as long as it does.
    pub(super) async fn renew(self) {
        if !self.post.call() {
            return;
        }
        let (standby, watch) = match self.stand_by().await {
            Ok(recruited) => recruited,
            Err(error) => {
                debug!(%error, "no launcher stands by");
                return self.post.give_up();
            }
        };
        self.post.fill(standby);
        let post = Arc::downgrade(&self.post);
        drop(self);
        watch.over().await;
        if let Some(post) = post.upgrade() {
            post.bury();
        }
    }

    async fn stand_by(&self) -> io::Result<(Standby, Watch)> {
        let (theirs, ours) = Outputs::pipes()?;
        let (command, socket) = standby::command(&self.launcher, theirs)?;
        Standby::new(self.recruit(command, ours).await?, socket)
    }

    async fn recruit(&self, command: Command, outputs: Ours) -> io::Result<Recruit> {
        let child = self.start(command).await?;
        Ok(Recruit { guarded: self.guardian.watch(child.child.id()), child, outputs })
    }

    /// `None` if nobody stands by, or not any more.
    fn send_off(&self, errand: &Errand, stdio: Option<&StdUnixStream>) -> io::Result<Option<Recruit>> {
        let Some(errand) = errand.encode()? else { return Ok(None) };
        let sent = self.post.take().and_then(|standby| standby.send_off(&errand, stdio).ok());
        if sent.is_some() {
            // It may wait for the very processor that this thread goes on with.
            thread::yield_now();
        }
        Ok(sent)
    }

    /// A launcher that is told by its arguments and its environment.
    fn direct(&self, errand: Errand, stdio: Option<StdUnixStream>, theirs: Theirs) -> io::Result<Command> {
        let mut command = Command::new(&self.launcher);
        command.arg(LAUNCH_ARGUMENT).arg(serde_json::to_string(&errand.plan)?);
        command.env_clear().envs(errand.environment);
        match stdio {
            Some(stream) => command.stdin(OwnedFd::from(stream.try_clone()?)).stdout(OwnedFd::from(stream)),
            None => command.stdin(Stdio::null()).stdout(theirs.stdout),
        };
        command.stderr(theirs.stderr);
        Ok(command)
    }

    async fn start(&self, command: Command) -> io::Result<OwnChild> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { command, reply }).await.map_err(io::Error::other)?;
        answer.await.map_err(io::Error::other)?
    }
}

impl Outputs<PipeWriter> {
    /// The worker's ends and ours.
    fn pipes() -> io::Result<(Theirs, Ours)> {
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        Ok((Self { stdout: their_stdout, stderr: their_stderr }, Outputs { stdout, stderr }))
    }
}

impl Process {
    fn adopt(recruit: Recruit) -> io::Result<(Self, Pipes)> {
        let Recruit { child: mut own, outputs, guarded } = recruit;
        let child = &mut own.child;
        let pid = Pid::from_child(child);
        let watch = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(system::watch);
        let exit_watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                signal_all(pid, Signal::KILL);
                drop(guarded);
                let _ = child.wait();
                return Err(error);
            }
        };
        let process = Self { child: Some(own), pid, exit_watch, guarded: Some(guarded) };
        let receive = |pipe: PipeReader| pipe::Receiver::from_owned_fd(pipe.into());
        let pipes = Outputs { stdout: receive(outputs.stdout)?, stderr: receive(outputs.stderr)? };
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
        self.guarded = None;
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
            self.guarded = None;
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
