//! Everything between the server and a worker's program: the launcher and what it sets up, the guardian, and orphans.

mod capabilities;
mod guardian;
mod identity;
mod landlock;
mod launcher;
mod limits;
mod orphans;
mod plan;
mod probe;

pub use guardian::{GUARD_ARGUMENT, run_guardian};
pub(super) use guardian::{GuardedGroup, Guardian};
pub(super) use identity::FileOwner;
pub use launcher::{LAUNCH_ARGUMENT, run_launcher};
pub(super) use orphans::{ChildRegistry, RegisteredChild};
pub(super) use plan::{LAUNCH_FAILED, LaunchFailure, LaunchPlan};
pub use probe::{FileAccess, probe_files};
