//! The only module with `unsafe`: system calls for which no safe interface exists.
#![expect(unsafe_code, reason = "neither the standard library, rustix nor tokio has a safe form of these")]

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Closes all descriptors but stdin, stdout and stderr in the program about to be executed. An inherited descriptor would
/// keep sockets and files of the server open for as long as the worker, or its children, live.
pub(crate) fn close_inherited_on_exec() -> io::Result<()> {
    // SAFETY: the flag only sets close-on-exec; no descriptor that other code owns is closed or changes its meaning
    // in this process, which is single-threaded and executes another program next.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers a descriptor with the runtime, to wait for its readability.
pub(crate) fn watch_readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, stays the same and is owned by the `AsyncFd` until that is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(io::Error::from)
}

/// Makes glibc return freed memory to the system. It takes milliseconds, so it is for a thread that may block. Other
/// allocators need no such call.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
