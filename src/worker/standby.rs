//! The standby: a launcher that was started ahead of time, so that to start a worker takes one message and one `exec`.
//!
//! It waits at its stdin, a socket, for the plan and the environment of the worker that it is to become, and for its connection
//! if that is to be its stdin and stdout. Until then it has nothing that is a worker's but the pipes for its output: it is the
//! server's own process, with the server's rights and an empty environment. It ends with the server, or by itself when the server
//! lets go of the socket.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, ExitCode},
};

use parking_lot::Mutex;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    process::{
        DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, set_dumpable_behavior,
        set_parent_process_death_signal, waitid,
    },
    stdio::{dup2_stdin, dup2_stdout},
};
use serde::{Deserialize, Serialize};
use tokio::{io::unix::AsyncFd, sync::oneshot};

use crate::system;

use super::{
    launch::{self, LaunchFailure, LaunchPlan, Stage},
    process::{Recruit, Theirs},
};

/// The first argument that turns our binary into a standby.
pub const STANDBY_ARGUMENT: &str = "__standby";

/// What is handed over at most. It is less than a socket's buffer, so that handing over never waits; a worker with more of an
/// environment than this is started directly.
const LARGEST: usize = 64 * 1024;

/// What becomes of a standby.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    pub plan: LaunchPlan,
    pub environment: Vec<(String, String)>,
}

/// Where the standby waits, of which there is one at most.
#[derive(Debug, Default)]
pub(super) struct Post(Mutex<Slot>);

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Vacant,
    /// One is being started.
    Called,
    Manned(Standby),
}

/// The server's side of a standby.
#[derive(Debug)]
pub(super) struct Standby {
    /// `None` once it is a worker.
    recruit: Option<Recruit>,
    socket: OwnedFd,
    /// Dropped with it: then nobody need wait for its end any more.
    _kept: oneshot::Sender<()>,
}

/// What tells when a standby has ended, or is one no more.
#[derive(Debug)]
pub(super) struct Watch {
    exit: AsyncFd<OwnedFd>,
    let_go: oneshot::Receiver<()>,
}

impl Post {
    /// Whether the post is vacant, in which case the caller is to fill it.
    pub(super) fn call(&self) -> bool {
        let mut slot = self.0.lock();
        let vacant = matches!(*slot, Slot::Vacant);
        if vacant {
            *slot = Slot::Called;
        }
        vacant
    }

    pub(super) fn fill(&self, standby: Standby) {
        *self.0.lock() = Slot::Manned(standby);
    }

    /// The one who was called does not come.
    pub(super) fn give_up(&self) {
        *self.0.lock() = Slot::Vacant;
    }

    pub(super) fn take(&self) -> Option<Standby> {
        let mut slot = self.0.lock();
        match std::mem::take(&mut *slot) {
            Slot::Manned(standby) => Some(standby),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Lets go of a standby that has ended.
    pub(super) fn bury(&self) {
        let mut slot = self.0.lock();
        if let Slot::Manned(standby) = &*slot
            && !standby.is_waiting()
        {
            *slot = Slot::Vacant;
        }
    }
}

/// What starts a standby, and the server's end of its socket. `launcher` is our own binary. It has the pipes of the worker's
/// output from the start, and keeps silent until it is one.
pub(super) fn command(launcher: &Path, outputs: Theirs) -> io::Result<(Command, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(launcher);
    command.arg0("remuda").arg(STANDBY_ARGUMENT).env_clear();
    command.stdin(theirs).stdout(outputs.stdout).stderr(outputs.stderr);
    Ok((command, ours))
}

impl Standby {
    /// Who was started with `command`, and the server's end of the socket.
    pub(super) fn new(recruit: Recruit, socket: OwnedFd) -> io::Result<(Self, Watch)> {
        let (kept, let_go) = oneshot::channel();
        let pid = Pid::from_child(&recruit.child.child);
        let standby = Self { recruit: Some(recruit), socket, _kept: kept };
        let exit = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(system::watch)?;
        Ok((standby, Watch { exit, let_go }))
    }

    /// Makes a worker of it, with the stream as its stdin and stdout if there is one. An error means that it is of no use, and
    /// has ended.
    pub(super) fn send_off(mut self, errand: &[u8], stdio: Option<&UnixStream>) -> io::Result<Recruit> {
        let streams: Vec<_> = stdio.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !streams.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&streams));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(errand)], &mut control, flags)?;
        Ok(self.recruit.take().expect("it is not a worker yet"))
    }

    /// Whether it has not ended. It is not reaped by being asked.
    fn is_waiting(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let waits = |recruit: &Recruit| waitid(WaitId::Pid(Pid::from_child(&recruit.child.child)), options);
        self.recruit.as_ref().is_some_and(|recruit| matches!(waits(recruit), Ok(None)))
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(Recruit { mut child, guarded, .. }) = self.recruit.take() {
            // It sleeps, or has ended: there is nothing to wait for but the kernel.
            let _ = child.child.kill();
            drop(guarded);
            let _ = child.wait();
        }
    }
}

impl Watch {
    /// Resolves when the standby has ended, or is one no more.
    pub(super) async fn over(self) {
        tokio::select! {
            _ = self.exit.readable() => {}
            _ = self.let_go => {}
        }
    }
}

impl Errand {
    /// `None` if it is too large to be handed over.
    pub(super) fn encode(&self) -> io::Result<Option<Vec<u8>>> {
        let text = serde_json::to_vec(self)?;
        Ok((text.len() <= LARGEST).then_some(text))
    }
}

/// Runs the standby until it is sent off. Comes back only if it is not needed, or the worker's command could not be executed.
#[must_use]
pub fn stand_by() -> ExitCode {
    // A worker of the same user must not get hold of us, nor read what we are told: that may be another kind's.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if launch::set_apart().is_err() {
        // The next launcher will tell why.
        return ExitCode::FAILURE;
    }
    launch::rehearse();
    match File::open("/dev/null").and_then(|nothing| await_errand(&nothing)) {
        Ok(Some(errand)) => launch::carry_out(&errand),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => launch::report(&LaunchFailure::io(Stage::Descriptors, &error)),
    }
}

/// Waits for the errand, and gives the worker its stdin: the stream that came with the errand, or else nothing. `None` if the
/// server has let go of its end.
fn await_errand(nothing: &File) -> io::Result<Option<Vec<u8>>> {
    let Some((errand, stdio)) = receive()? else { return Ok(None) };
    match stdio {
        Some(stream) => {
            dup2_stdin(&stream)?;
            dup2_stdout(&stream)?;
        }
        None => dup2_stdin(nothing)?,
    }
    Ok(Some(errand))
}

/// `None` if the server has let go of its end.
fn receive() -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut text = vec![0; LARGEST];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("its connection was lost on the way"));
    }
    text.truncate(received.bytes);
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let stdio = rights.flatten().next();
    Ok(Some((text, stdio)))
}
