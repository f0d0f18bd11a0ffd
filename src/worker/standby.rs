//! The standby: a launcher that was started ahead of time, so that to start a worker takes one message and one `exec`.
//!
//! It waits at its stdin, a socket, for the plan, the environment and the three standard streams of the worker that it is to
//! become. Until then it has nothing that is a worker's: it is the server's own process, with the server's rights and an empty
//! environment. It ends with the server, or by itself when the server lets go of the socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use parking_lot::Mutex;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    process::{
        DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, set_dumpable_behavior, set_parent_process_death_signal,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use serde::{Deserialize, Serialize};
use tokio::{io::unix::AsyncFd, sync::oneshot};

use crate::system;

use super::{
    launch::{self, LaunchPlan},
    orphans::OwnChild,
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

/// The worker's stdin, stdout and stderr.
pub(super) type Streams = [OwnedFd; 3];

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
    child: Option<OwnChild>,
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
        if let Slot::Manned(standby) = &mut *slot
            && !standby.is_waiting()
        {
            *slot = Slot::Vacant;
        }
    }
}

/// What starts a standby, and the server's end of its socket. `launcher` is our own binary.
pub(super) fn recruit(launcher: &Path) -> io::Result<(Command, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(launcher);
    command.arg0("remuda").arg(STANDBY_ARGUMENT).env_clear();
    command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((command, ours))
}

impl Standby {
    /// Both come of `recruit`.
    pub(super) fn new(child: OwnChild, socket: OwnedFd) -> io::Result<(Self, Watch)> {
        let (kept, let_go) = oneshot::channel();
        let pid = Pid::from_child(&child.child);
        let standby = Self { child: Some(child), socket, _kept: kept };
        let exit = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(system::watch)?;
        Ok((standby, Watch { exit, let_go }))
    }

    /// Makes a worker of it. An error means that it is of no use, and has ended.
    pub(super) fn send_off(mut self, errand: &[u8], streams: &Streams) -> io::Result<OwnChild> {
        let streams = streams.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&streams));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(errand)], &mut control, flags)?;
        Ok(self.child.take().expect("it is not a worker yet"))
    }

    /// Whether it has not ended. Reaps it if it has.
    fn is_waiting(&mut self) -> bool {
        self.child.as_mut().is_some_and(|own| matches!(own.child.try_wait(), Ok(None)))
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(OwnChild { child, .. }) = &mut self.child {
            // It sleeps, or has ended: there is nothing to wait for but the kernel.
            let _ = child.kill();
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
    match receive().and_then(|received| received.map(take_over).transpose()) {
        Ok(Some(errand)) => launch::carry_out(&errand),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// `None` if the server has let go of its end.
fn receive() -> io::Result<Option<(Vec<u8>, Streams)>> {
    let mut text = vec![0; LARGEST];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
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
    text.truncate(received.bytes);
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let streams: Vec<OwnedFd> = rights.flatten().collect();
    let streams = streams.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Some((text, streams)))
}

/// Makes the worker's streams our own. What goes wrong from here on can be told.
fn take_over((errand, [stdin, stdout, stderr]): (Vec<u8>, Streams)) -> io::Result<Vec<u8>> {
    dup2_stderr(stderr)?;
    dup2_stdout(stdout)?;
    dup2_stdin(stdin)?;
    Ok(errand)
}
