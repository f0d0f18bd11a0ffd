//! Things that a worker may not be allowed to do: each is tried, and what came of it is told.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use nix::unistd::setpgid;
use rustix::process::{Pid, test_kill_process};
use serde::Deserialize;

/// Time that a connection must stay open to count as accepted.
const ACCEPTED_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attempt {
    Read(PathBuf),
    List(PathBuf),
    Write(PathBuf),
    Execute(PathBuf),
    /// To be connected for a while.
    Connect(PathBuf),
    ConnectAbstract(String),
    /// To be allowed to send a signal, without sending one.
    Signal(i32),
    JoinGroup(i32),
    /// To have this many files open at once.
    OpenFiles(usize),
}

impl Attempt {
    /// "ok", or what kind of error it was.
    pub(crate) fn outcome(&self) -> String {
        self.dare().map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".to_owned())
    }

    fn dare(&self) -> io::Result<()> {
        match self {
            Self::Read(path) => File::open(path)?.read(&mut [0]).map(drop),
            Self::List(path) => fs::read_dir(path).map(drop),
            Self::Write(path) => File::create(path)?.write_all(b"x"),
            Self::Execute(path) => Command::new(path).stdin(Stdio::null()).stdout(Stdio::null()).status().map(drop),
            Self::Connect(path) => stay(&UnixStream::connect(path)?),
            Self::ConnectAbstract(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop),
            Self::Signal(pid) => {
                let pid = Pid::from_raw(*pid).ok_or_else(|| io::Error::other("not a process id"))?;
                test_kill_process(pid).map_err(io::Error::from)
            }
            Self::JoinGroup(group) => {
                let raw = nix::unistd::Pid::from_raw;
                setpgid(raw(0), raw(*group)).map_err(io::Error::from)
            }
            Self::OpenFiles(count) => {
                (0..*count).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>().map(drop)
            }
        }
    }
}

fn stay(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(ACCEPTED_AFTER))?;
    match stream.read(&mut [0]) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
