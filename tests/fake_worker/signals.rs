//! Signals: to ignore one, and to send oneself another.

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use serde::Deserialize;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum SignalName {
    Abrt,
    Bus,
    Fpe,
    Hup,
    Ill,
    Int,
    Kill,
    Pipe,
    Quit,
    Segv,
    Stop,
    Sys,
    Term,
    Trap,
    Usr1,
    Usr2,
    Xcpu,
}

impl SignalName {
    fn signal(self) -> Signal {
        match self {
            Self::Abrt => Signal::ABORT,
            Self::Bus => Signal::BUS,
            Self::Fpe => Signal::FPE,
            Self::Hup => Signal::HUP,
            Self::Ill => Signal::ILL,
            Self::Int => Signal::INT,
            Self::Kill => Signal::KILL,
            Self::Pipe => Signal::PIPE,
            Self::Quit => Signal::QUIT,
            Self::Segv => Signal::SEGV,
            Self::Stop => Signal::STOP,
            Self::Sys => Signal::SYS,
            Self::Term => Signal::TERM,
            Self::Trap => Signal::TRAP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
            Self::Xcpu => Signal::XCPU,
        }
    }
}

pub(crate) fn ignore_term() {
    set_disposition(Signal::TERM, libc::SIG_IGN);
}

/// Sends this process a signal that does what it does by default: Rust ignores SIGPIPE, and its handler of SIGSEGV and
/// SIGBUS swallows one that no access to memory caused.
pub(crate) fn signal_self(name: SignalName) {
    leave_no_core();
    set_disposition(name.signal(), libc::SIG_DFL);
    let _ = kill_process(getpid(), name.signal());
}

pub(crate) fn abort() -> ! {
    leave_no_core();
    std::process::abort()
}

/// A core file would take time to write and stay behind.
fn leave_no_core() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

#[expect(unsafe_code, reason = "neither the standard library nor rustix sets what a signal does")]
fn set_disposition(signal: Signal, disposition: libc::sighandler_t) {
    // SAFETY: the disposition is SIG_IGN or SIG_DFL, so no handler of ours ever runs. It fails for SIGKILL and SIGSTOP,
    // which always do what they do.
    unsafe { libc::signal(signal.as_raw(), disposition) };
}
