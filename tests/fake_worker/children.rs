//! Processes that the worker starts: some that outstay their welcome, and one that connects in its place.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Child, Command, Stdio, exit},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, set_parent_process_death_signal, setsid};
use serde_json::Map;

use crate::{
    die,
    wire::{Frame, Transport, Wire},
};

/// The options that make this program such a child.
pub(crate) const SLEEP_FOREVER: &str = "--sleep-forever";
pub(crate) const SLEEP_FOREVER_SETSID: &str = "--sleep-forever-setsid";
pub(crate) const OUTSIDER: &str = "--outsider";

/// As good as for ever to a test, and yet a child that nobody stops is gone some day.
const FOREVER: Duration = Duration::from_secs(1000);

/// Starts a child of this process group that holds the connection and does nothing.
pub(crate) fn grandchild(wire: &Wire) -> io::Result<Child> {
    myself(SLEEP_FOREVER)?.stdin(wire.share()?).spawn()
}

/// The same in a session, and so in a group, of its own. It is there already when this returns.
pub(crate) fn grandchild_in_own_session(wire: &Wire) -> io::Result<Child> {
    let mut child = myself(SLEEP_FOREVER_SETSID)?.stdin(wire.share()?).spawn()?;
    // Not rustix's call: a session that is led from outside our pid namespace reads as 0, which its type cannot hold.
    let pid = nix::unistd::Pid::from_raw(Pid::from_child(&child).as_raw_pid());
    while nix::unistd::getsid(Some(pid)) != Ok(pid) && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}

/// Lets a child from outside this process group connect, and returns when it has.
pub(crate) fn connect_from_outside() -> io::Result<Child> {
    let mut child = myself(OUTSIDER)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("its stdout is a pipe");
    BufReader::new(stdout).read_line(&mut String::new())?;
    Ok(child)
}

fn myself(option: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(option);
    Ok(command)
}

pub(crate) fn sleep_forever() -> ! {
    thread::sleep(FOREVER);
    exit(0)
}

pub(crate) fn sleep_forever_in_own_session() -> ! {
    leave_session();
    sleep_forever()
}

/// Connects as if it were the worker, and goes when the connection or the worker does.
pub(crate) fn be_outsider() -> ! {
    leave_session();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let wire = Wire::open(Transport::Socket).unwrap_or_else(|error| die(1, &format!("cannot connect: {error}")));
    wire.send(&Frame::Ready { more: &Map::new() });
    let _ = writeln!(io::stdout(), "connected");
    let _ = io::copy(&mut wire.reader(), &mut io::sink());
    exit(0)
}

fn leave_session() {
    setsid().unwrap_or_else(|error| die(1, &format!("cannot make a session: {error}")));
}
