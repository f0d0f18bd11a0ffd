//! The kernel's capabilities: parts of root's rights that a server may have without being root, and no worker gets.

use rustix::{
    io,
    process::geteuid,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

use super::launch::{LaunchFailure, Stage};

/// Gives up all that the launcher has, and so the worker. A worker that is root keeps them: it is root by its kind's choice.
///
/// The bounding set stays. With `no_new_privs` nothing can be gained of it, and without it a kind has asked for just that.
pub(super) fn give_up() -> Result<(), LaunchFailure> {
    if geteuid().is_root() {
        return Ok(());
    }
    keep(CapabilitySet::empty()).map_err(|errno| LaunchFailure::io(Stage::Privileges, &errno.into()))
}

/// Gives up all but the right to signal the processes of other users, even if we are root.
pub(super) fn keep_kill() -> io::Result<()> {
    keep(CapabilitySet::KILL)
}

/// Gives up all but these. What is not permitted and inheritable any more is gone from the ambient set too.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    let wanted = CapabilitySets {
        effective: held.effective & kept,
        permitted: held.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // A sandbox that gives no rights may well forbid the call.
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}
