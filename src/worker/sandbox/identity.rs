//! The user and group of a worker: looked up by name, and assumed by the launcher.

use std::{ffi::CString, fmt, io};

use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid};

use super::plan::LaunchFailure;

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
    let user = User::from_name(name).map_err(io::Error::from).map_err(user_failure)?;
    let user = user.ok_or_else(|| user_failure(format!("there is no user {name:?} on this machine")))?;
    let group = group.unwrap_or(user.gid);
    if user.uid == Uid::effective() && is_current(group) {
        return Ok(());
    }
    let c_name = CString::new(name)?;
    let changed = initgroups(&c_name, group).and_then(|()| setgid(group)).and_then(|()| setuid(user.uid));
    changed.map_err(io::Error::from).map_err(user_failure)
}

fn enter_group(group: Gid) -> Result<(), LaunchFailure> {
    if is_current(group) {
        return Ok(());
    }
    setgroups(&[]).and_then(|()| setgid(group)).map_err(io::Error::from).map_err(group_failure)
}

/// True if there is nothing to change and no right to. Root always sets the supplementary groups.
fn is_current(group: Gid) -> bool {
    group == Gid::effective() && !Uid::effective().is_root()
}

fn find_group(name: &str) -> Result<Gid, LaunchFailure> {
    let found = Group::from_name(name).map_err(io::Error::from).map_err(group_failure)?;
    let missing = || group_failure(format!("there is no group {name:?} on this machine"));
    found.map(|group| group.gid).ok_or_else(missing)
}

fn user_failure(reason: impl fmt::Display) -> LaunchFailure {
    LaunchFailure::new(format!(
        "cannot become its user: {reason}; check the kind's user and that the server runs as root"
    ))
}

fn group_failure(reason: impl fmt::Display) -> LaunchFailure {
    LaunchFailure::new(format!(
        "cannot enter its group: {reason}; check the kind's group and that the server runs as root"
    ))
}
