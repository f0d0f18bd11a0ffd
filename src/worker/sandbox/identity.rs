//! The user and group of a worker: looked up by name, and assumed by the launcher.

use std::ffi::CString;

use nix::{
    errno::Errno,
    unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid},
};

use super::plan::{LaunchFailure, LaunchStage};

/// Owner of a worker's files; `None` stands for the server's own user or group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::worker) struct FileOwner {
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl FileOwner {
    /// Ignores unknown names: the launcher reports them.
    pub(in crate::worker) fn find(user: Option<&str>, group: Option<&str>) -> Self {
        let user = user.and_then(|name| User::from_name(name).ok().flatten());
        let group = group.and_then(|name| Group::from_name(name).ok().flatten());
        let group = group.map(|group| group.gid).or(user.as_ref().map(|user| user.gid));
        Self { user: user.map(|user| user.uid.as_raw()), group: group.map(Gid::as_raw) }
    }

    pub(in crate::worker) fn is_another_user(self) -> bool {
        self.user.is_some_and(|user| user != Uid::effective().as_raw())
    }
}

/// Becomes this user in this group, with the user's supplementary groups. A group alone has no supplementary groups.
pub(super) fn assume(user: Option<&str>, group: Option<&str>) -> Result<(), LaunchFailure> {
    let group = group.map(find_group).transpose()?;
    match (user, group) {
        (Some(name), group) => become_user(name, group),
        (None, Some(group)) => enter_group(group),
        (None, None) => Ok(()),
    }
}

fn become_user(name: &str, group: Option<Gid>) -> Result<(), LaunchFailure> {
    let fail = |errno: Errno| LaunchFailure::io(LaunchStage::User, errno);
    let user = User::from_name(name)
        .map_err(fail)?
        .ok_or_else(|| LaunchFailure::new(LaunchStage::User, format!("there is no user {name:?} on this machine")))?;
    let group = group.unwrap_or(user.gid);
    if user.uid == Uid::effective() && is_current(group) {
        return Ok(());
    }
    let c_name = CString::new(name).map_err(|error| LaunchFailure::new(LaunchStage::User, error.to_string()))?;
    initgroups(&c_name, group).map_err(fail)?;
    setgid(group).map_err(fail)?;
    setuid(user.uid).map_err(fail)
}

fn enter_group(group: Gid) -> Result<(), LaunchFailure> {
    if is_current(group) {
        return Ok(());
    }
    setgroups(&[]).and_then(|()| setgid(group)).map_err(|errno| LaunchFailure::io(LaunchStage::Group, errno))
}

/// True if there is nothing to change and no right to. Root always sets the supplementary groups.
fn is_current(group: Gid) -> bool {
    group == Gid::effective() && !Uid::effective().is_root()
}

fn find_group(name: &str) -> Result<Gid, LaunchFailure> {
    let found = Group::from_name(name).map_err(|errno| LaunchFailure::io(LaunchStage::Group, errno))?;
    let missing = || LaunchFailure::new(LaunchStage::Group, format!("there is no group {name:?} on this machine"));
    found.map(|group| group.gid).ok_or_else(missing)
}
