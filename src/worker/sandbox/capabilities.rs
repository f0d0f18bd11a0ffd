//! Linux capabilities: parts of root's rights that a server may have without being root, and that no worker gets.

use rustix::{
    io,
    process::geteuid,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

use super::plan::LaunchFailure;

/// Drops all capabilities of the launcher, and so of the worker. A worker that runs as root by its kind's choice keeps them.
///
/// The bounding set stays: with `no_new_privs` nothing can be gained from it, and a kind without that asked for just this.
pub(super) fn drop_all() -> Result<(), LaunchFailure> {
    if !geteuid().is_root() {
        retain(CapabilitySet::empty())?;
    }
    Ok(())
}

/// Drops all but the right to signal processes of other users, also for root.
pub(super) fn retain_kill() -> io::Result<()> {
    retain(CapabilitySet::KILL)
}

/// Drops all but these. The kernel takes from the ambient set what is no longer permitted and inheritable.
fn retain(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    let wanted = CapabilitySets {
        effective: held.effective & kept,
        permitted: held.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // A sandbox that grants no capabilities may forbid the call.
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}
