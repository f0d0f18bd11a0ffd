//! The start of a worker: spawn, connection and `ready`, each raced against exit, a deadline and a requested stop.

use std::{
    io,
    os::unix::net::UnixStream as StdUnixStream,
    path::{self, Path},
};

use tokio::{
    net::UnixStream,
    time::{Instant, sleep_until, timeout_at},
};
use tracing::warn;

use crate::{
    config::{Transport, WorkDir},
    protocol::{PROTOCOL_VERSION, ProtocolError, WorkerFrame},
    state::{ConnectionState, WorkerState},
};

use super::{
    connection::{ReadOutcome, WorkerConnection},
    driver::Driver,
    end_reason::{EXIT_AFTER_CLOSE_TIMEOUT, EndDetail, EndReason, StopMethod},
    outbox::Outbox,
    process::{Process, SpawnRequest},
    runtime_dir::WorkerSocket,
    sandbox::{FileOwner, LaunchPlan},
    snapshot::ReadyInfo,
    usage,
};

/// Our end of the connection before the worker has made it.
enum PendingStart {
    Socket(WorkerSocket),
    Stdio(StdUnixStream),
}

impl Driver {
    /// Brings the worker to `ready`, or returns the reason why it does not get there.
    pub(super) async fn start(&mut self) -> Result<(), EndReason> {
        let started = Instant::now();
        let kind = self.worker.kind.clone();
        let spawned = timeout_at(started + kind.start_timeout, self.spawn()).await;
        let pending = spawned.map_err(io::Error::from).flatten().map_err(|error| EndReason::setup_failed(&error))?;
        self.advance_connection(ConnectionState::Connecting);
        let stream = self.connect(pending, started + kind.connect_timeout).await?;
        self.on_connected(stream);
        let info = self.wait_for_ready(started + kind.start_timeout).await?;
        // Before its first query, which may be its last.
        self.measure();
        // Refused only if a stop was requested in the meantime, which the driver sees next.
        self.worker.mark_ready(info);
        Ok(())
    }

    async fn spawn(&mut self) -> io::Result<PendingStart> {
        let kind = self.worker.kind.clone();
        let mut environment = self.context.environment.to_vec();
        environment.push(("REMUDA_WORKER_ID".to_owned(), self.worker.id.to_string()));
        environment.push(("REMUDA_KIND".to_owned(), kind.name.to_string()));
        environment.extend(self.worker.key().map(|key| ("REMUDA_KEY".to_owned(), key.to_string())));
        let owner = FileOwner::find(kind.user.as_deref(), kind.group.as_deref());
        let (pending, stdio) = match kind.transport {
            Transport::Socket => {
                let socket = self.context.runtime_dir.listen(self.worker.id, owner)?;
                environment.push(("REMUDA_SOCKET".to_owned(), socket.path().display().to_string()));
                (PendingStart::Socket(socket), None)
            }
            Transport::Stdio => {
                let (ours, theirs) = StdUnixStream::pair()?;
                (PendingStart::Stdio(ours), Some(theirs))
            }
        };
        let (directory, command) = match &kind.dir {
            WorkDir::At(path) => (path.display().to_string(), kind.command.clone()),
            WorkDir::Private => (self.create_private_dir(owner, &mut environment)?, with_absolute_paths(&kind.command)),
        };
        let (directory, private) = (Some(directory), self.private_dir.is_some());
        let plan = LaunchPlan { directory, private, command, ..LaunchPlan::new(&kind) };
        let (process, pipes) = self.context.spawner.spawn(SpawnRequest { plan, environment, stdio }).await?;
        self.worker.lock.lock().pid = Some(process.pid());
        // While the process loads its program, and long before it could use up the machine's memory.
        self.oom_kills_before = usage::oom_kills();
        self.output.start(self.worker.id, &self.worker.kind.name, pipes);
        self.process = Some(process);
        Ok(pending)
    }

    /// Creates the worker's own directory, also for temporary files unless its kind sets `TMPDIR`.
    fn create_private_dir(&mut self, owner: FileOwner, environment: &mut Vec<(String, String)>) -> io::Result<String> {
        let directory = self.context.runtime_dir.create_private_dir(self.worker.id, owner)?;
        let path = directory.path().display().to_string();
        if !self.worker.kind.env.contains_key("TMPDIR") {
            environment.push(("TMPDIR".to_owned(), path.clone()));
        }
        self.private_dir = Some(directory);
        Ok(path)
    }

    async fn connect(&self, pending: PendingStart, deadline: Instant) -> Result<UnixStream, EndReason> {
        let socket = match pending {
            PendingStart::Socket(socket) => socket,
            PendingStart::Stdio(stream) => {
                stream.set_nonblocking(true).map_err(|error| EndReason::setup_failed(&error))?;
                return UnixStream::from_std(stream).map_err(|error| EndReason::setup_failed(&error));
            }
        };
        let process = self.process.as_ref().expect("the process was spawned");
        let mut refused_peer = None;
        tokio::select! {
            biased;
            accepted = accept(&socket, process, &mut refused_peer) => return accepted.map_err(|error| EndReason::setup_failed(&error)),
            () = process.wait_for_exit() => return Err(EndReason::exited_early(EndDetail::ExitedBeforeConnecting)),
            request = self.worker.wait_for_stop_request() => {
                return Err(EndReason::stopped(request.cause, StopMethod::Sigterm));
            }
            () = sleep_until(deadline) => {}
        }
        Err(refused_peer
            .map_or_else(|| EndReason::never_connected(self.worker.kind.connect_timeout), EndReason::wrong_peer))
    }

    fn on_connected(&mut self, stream: UnixStream) {
        let (read, write) = stream.into_split();
        let max_line = usize::try_from(self.worker.kind.max_line_bytes).unwrap_or(usize::MAX);
        self.connection = Some(WorkerConnection::new(read, max_line));
        self.worker.set_outbox(Outbox::new(write.into()));
        self.advance_connection(ConnectionState::Connected);
        self.worker.step(WorkerState::Spawning, WorkerState::Loading, "connected");
    }

    async fn wait_for_ready(&mut self, deadline: Instant) -> Result<ReadyInfo, EndReason> {
        loop {
            match self.next_ready_frame() {
                Ok(Some(info)) => return Ok(info),
                Ok(None) => {}
                Err(error) => return Err(EndReason::protocol(&error)),
            }
            let connection = self.connection.as_mut().expect("the worker has connected");
            let process = self.process.as_ref().expect("the process was spawned");
            let outcome = tokio::select! {
                biased; // Reads come after the deadline, so that a flood of bytes cannot hide it.
                request = self.worker.wait_for_stop_request() => {
                    return Err(EndReason::stopped(request.cause, StopMethod::Sigterm));
                }
                () = sleep_until(deadline) => return Err(EndReason::never_ready(self.worker.kind.start_timeout)),
                outcome = connection.read() => outcome,
                () = process.wait_for_exit() => return Err(EndReason::exited_early(EndDetail::ExitedBeforeReady)),
            };
            if outcome == ReadOutcome::End {
                return Err(self.closed_before_ready(deadline).await);
            }
        }
    }

    /// A closed connection usually means that the process is about to exit; its exit status tells more.
    async fn closed_before_ready(&self, deadline: Instant) -> EndReason {
        let connection = self.connection.as_ref().expect("the worker has connected");
        let process = self.process.as_ref().expect("the process was spawned");
        let deadline = deadline.min(Instant::now() + EXIT_AFTER_CLOSE_TIMEOUT);
        if timeout_at(deadline, process.wait_for_exit()).await.is_ok() {
            return EndReason::exited_early(EndDetail::ExitedBeforeReady);
        }
        match connection.finish() {
            Err(error) => EndReason::protocol(&error),
            Ok(()) => EndReason::disconnected(),
        }
    }

    /// Looks for `ready` in the bytes that have arrived.
    fn next_ready_frame(&mut self) -> Result<Option<ReadyInfo>, ProtocolError> {
        let connection = self.connection.as_mut().expect("the worker has connected");
        let Some(line) = connection.next_line()? else { return Ok(None) };
        match WorkerFrame::parse(line)? {
            WorkerFrame::Ready { protocol: Some(version), .. } if version != PROTOCOL_VERSION => {
                Err(ProtocolError::UnsupportedVersion { got: version, supported: PROTOCOL_VERSION })
            }
            WorkerFrame::Ready { name, version, capabilities, heartbeat, .. } => Ok(Some(ReadyInfo {
                name: name.map(Into::into),
                version: version.map(Into::into),
                capabilities: capabilities.into_iter().map(Into::into).collect(),
                heartbeats: heartbeat.unwrap_or(false),
            })),
            other => Err(ProtocolError::NotReady { frame_type: other.frame_type() }),
        }
    }
}

/// The command with absolute paths of the files that it names, for a worker in another directory. Bare words stay: they may
/// be no paths, even if such a file exists here.
fn with_absolute_paths(command: &[String]) -> Vec<String> {
    let absolute = |(index, word): (usize, &String)| {
        let looks_like_a_path = word.contains('/') || (index > 0 && word.contains('.'));
        let is_file = looks_like_a_path && Path::new(word).is_file();
        let path = is_file.then(|| path::absolute(word).ok()?.into_os_string().into_string().ok()).flatten();
        path.unwrap_or_else(|| word.clone())
    };
    command.iter().enumerate().map(absolute).collect()
}

/// Waits for the worker to connect, and refuses processes outside its process group.
async fn accept(socket: &WorkerSocket, process: &Process, refused_peer: &mut Option<i32>) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = socket.listener.accept().await?;
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or(0);
        if process.has_member(pid) {
            return Ok(stream);
        }
        // Logged once: repeated attempts must not fill the log.
        if refused_peer.replace(pid).is_none() {
            warn!(
                worker_pid = process.pid(),
                peer_pid = pid,
                "refused a connection from outside the worker's process group"
            );
        }
    }
}
