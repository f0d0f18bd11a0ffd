//! From nothing to `ready`: spawn, connection and handshake, each raced against exit, a deadline and a stop.

use std::{
    io,
    os::unix::net::UnixStream as StdUnixStream,
    path::{self, Path},
};

use tokio::{
    net::UnixStream,
    time::{Instant, timeout_at},
};
use tracing::warn;

use crate::{
    config::{Transport, WorkDir},
    model::DeathCause,
    protocol::{PROTOCOL_VERSION, ProtocolError, WorkerFrame},
    state::WorkerState,
};

use super::{
    Introduction,
    connection::{Connection, Fill},
    driver::Driver,
    end::{End, Farewell, Milestone, StartFailure},
    outbox::Outbox,
    process::{Pipes, Process, Start},
    sandbox::{FileOwner, LaunchPlan},
    serve::EXIT_AFTER_CLOSE,
    socket::WorkerSocket,
    usage,
};

/// The pool's end of the way to the worker, before anyone is at the other.
enum Door {
    Socket(WorkerSocket),
    Stdio(StdUnixStream),
}

impl Driver {
    /// Brings the worker to `ready`, or says why it does not get there.
    pub(super) async fn start(&mut self) -> Result<(), End> {
        let begun = Instant::now();
        let kind = self.worker.kind.clone();
        let spawned = timeout_at(begun + kind.start_timeout, self.spawn()).await;
        let door = spawned.map_err(io::Error::from).flatten().map_err(|error| setup_failed(&error))?;
        let stream = self.connect(door, begun + kind.connect_timeout).await?;
        self.adopt(stream);
        let introduction = self.await_ready(begun + kind.start_timeout).await?;
        // Refused only if a stop was asked for in the meantime, which the driver sees next.
        self.worker.introduced(introduction);
        // Before its first query, which may be its last.
        self.measure();
        Ok(())
    }

    async fn spawn(&mut self) -> io::Result<Door> {
        let kind = self.worker.kind.clone();
        let mut environment = self.surroundings.environment.to_vec();
        environment.push(("REMUDA_WORKER_ID".to_owned(), self.worker.id.to_string()));
        environment.push(("REMUDA_KIND".to_owned(), kind.name.to_string()));
        environment.extend(self.worker.key().map(|key| ("REMUDA_KEY".to_owned(), key.to_string())));
        let owner = FileOwner::find(kind.user.as_deref(), kind.group.as_deref());
        let (door, stdio) = match kind.transport {
            Transport::Socket => {
                let socket = self.surroundings.sockets.listen(self.worker.id, owner)?;
                environment.push(("REMUDA_SOCKET".to_owned(), socket.path().display().to_string()));
                (Door::Socket(socket), None)
            }
            Transport::Stdio => {
                let (ours, theirs) = StdUnixStream::pair()?;
                (Door::Stdio(ours), Some(theirs))
            }
        };
        let (directory, command) = match &kind.dir {
            WorkDir::At(path) => (path.display().to_string(), kind.command.clone()),
            WorkDir::Private => (self.make_private(owner, &mut environment)?, seen_from_here(&kind.command)),
        };
        let plan = LaunchPlan {
            parent: rustix::process::getpid().as_raw_pid(),
            directory: Some(directory),
            private: self.private.is_some(),
            user: kind.user.clone(),
            group: kind.group.clone(),
            confinement: kind.confinement.clone(),
            command,
            probe: None,
        };
        let (process, pipes) = self.surroundings.spawner.spawn(Start { plan, environment, stdio }).await?;
        self.worker.set_pid(process.pid());
        // While the process loads its program, and long before it could use up the machine's memory.
        self.oom_kills_before = usage::oom_kills();
        self.watch(process, pipes);
        Ok(door)
    }

    /// Makes the worker's own directory, which is its place for temporary files too unless its kind has another.
    fn make_private(&mut self, owner: FileOwner, environment: &mut Vec<(String, String)>) -> io::Result<String> {
        let directory = self.surroundings.sockets.private(self.worker.id, owner)?;
        let path = directory.path().display().to_string();
        if !self.worker.kind.env.contains_key("TMPDIR") {
            environment.push(("TMPDIR".to_owned(), path.clone()));
        }
        self.private = Some(directory);
        Ok(path)
    }

    fn watch(&mut self, process: Process, pipes: Pipes) {
        self.drains.begin(&self.worker, pipes);
        self.process = Some(process);
    }

    async fn connect(&self, door: Door, deadline: Instant) -> Result<UnixStream, End> {
        let setup = |error: io::Error| setup_failed(&error);
        let socket = match door {
            Door::Socket(socket) => socket,
            Door::Stdio(stream) => {
                stream.set_nonblocking(true).map_err(setup)?;
                return UnixStream::from_std(stream).map_err(setup);
            }
        };
        let process = self.process.as_ref().expect("the process was spawned");
        let mut stranger = None;
        tokio::select! {
            biased;
            accepted = accept(&socket, process, &mut stranger) => return accepted.map_err(setup),
            () = process.ended() => return Err(End::exited_before(Milestone::Connected)),
            cause = stop_requested(&self.worker) => return Err(End::stopped(cause, Farewell::Sigterm)),
            () = tokio::time::sleep_until(deadline) => {}
        }
        let failure = match stranger {
            Some(pid) => StartFailure::WrongPeer { pid },
            None => StartFailure::NeverConnected(self.worker.kind.connect_timeout),
        };
        Err(End::start(DeathCause::StartTimeout, failure))
    }

    fn adopt(&mut self, stream: UnixStream) {
        let (read, write) = stream.into_split();
        let max_line = usize::try_from(self.worker.kind.max_line_bytes).unwrap_or(usize::MAX);
        self.connection = Some(Connection::new(read, max_line));
        self.worker.connected(Outbox::new(write.into()));
        let _ = self.worker.step(WorkerState::Spawning, WorkerState::Loading, "connected");
    }

    async fn await_ready(&mut self, deadline: Instant) -> Result<Introduction, End> {
        loop {
            match self.next_introduction() {
                Ok(Some(introduction)) => return Ok(introduction),
                Ok(None) => {}
                Err(error) => return Err(End::protocol(&error)),
            }
            let connection = self.connection.as_mut().expect("the worker has connected");
            let process = self.process.as_ref().expect("the process was spawned");
            let fill = tokio::select! {
                biased; // Bytes come last, so that a flood of them cannot keep the deadline from being seen.
                cause = stop_requested(&self.worker) => return Err(End::stopped(cause, Farewell::Sigterm)),
                () = tokio::time::sleep_until(deadline) => {
                    let failure = StartFailure::NeverReady(self.worker.kind.start_timeout);
                    return Err(End::start(DeathCause::StartTimeout, failure));
                }
                fill = connection.fill() => fill,
                () = process.ended() => return Err(End::exited_before(Milestone::Ready)),
            };
            if fill == Fill::End {
                return Err(self.closed_before_ready(deadline).await);
            }
        }
    }

    /// A closed connection usually means that the process is about to end; its exit status tells more.
    async fn closed_before_ready(&self, deadline: Instant) -> End {
        let connection = self.connection.as_ref().expect("the worker has connected");
        let process = self.process.as_ref().expect("the process was spawned");
        let patience = deadline.min(Instant::now() + EXIT_AFTER_CLOSE);
        if timeout_at(patience, process.ended()).await.is_ok() {
            return End::exited_before(Milestone::Ready);
        }
        match connection.finish() {
            Err(error) => End::protocol(&error),
            Ok(()) => End::disconnected(),
        }
    }

    /// Looks for `ready` in what has arrived.
    fn next_introduction(&mut self) -> Result<Option<Introduction>, ProtocolError> {
        let connection = self.connection.as_mut().expect("the worker has connected");
        let Some(line) = connection.next_line()? else { return Ok(None) };
        match WorkerFrame::parse(line)? {
            WorkerFrame::Ready { protocol: Some(version), .. } if version != PROTOCOL_VERSION => {
                Err(ProtocolError::UnsupportedVersion { got: version, supported: PROTOCOL_VERSION })
            }
            WorkerFrame::Ready { name, version, capabilities, heartbeat, .. } => Ok(Some(Introduction {
                name: name.map(Into::into),
                version: version.map(Into::into),
                capabilities: capabilities.into_iter().map(Into::into).collect(),
                heartbeats: heartbeat.unwrap_or(false),
            })),
            other => Err(ProtocolError::NotReady { frame_type: other.frame_type() }),
        }
    }
}

/// The command with absolute paths of the files that it names, for a worker that runs elsewhere. A bare word is left alone: it
/// may well be no path, whatever lies around here.
fn seen_from_here(command: &[String]) -> Vec<String> {
    let absolute = |(index, word): (usize, &String)| {
        let looks_like_a_path = word.contains('/') || (index > 0 && word.contains('.'));
        let found = looks_like_a_path && Path::new(word).is_file();
        let path = found.then(|| path::absolute(word).ok()?.into_os_string().into_string().ok()).flatten();
        path.unwrap_or_else(|| word.clone())
    };
    command.iter().enumerate().map(absolute).collect()
}

fn setup_failed(error: &io::Error) -> End {
    End::start(DeathCause::StartFailed, StartFailure::Setup { message: error.to_string() })
}

async fn stop_requested(worker: &super::PoolWorker) -> DeathCause {
    loop {
        if let Some(intent) = worker.intent() {
            return intent.cause;
        }
        worker.attention.notified().await;
    }
}

/// Waits for the worker to connect. Whoever is not of its process group is refused.
async fn accept(socket: &WorkerSocket, process: &Process, stranger: &mut Option<i32>) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = socket.listener.accept().await?;
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or(0);
        if process.has_member(pid) {
            return Ok(stream);
        }
        // Told once: one who keeps trying must not fill the log.
        if stranger.replace(pid).is_none() {
            warn!(
                worker_pid = process.pid(),
                peer_pid = pid,
                "refused a connection from outside the worker's process group"
            );
        }
    }
}
