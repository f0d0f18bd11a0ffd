//! The user and the group that a worker runs as: found by their names, and taken on by the launcher.

use std::{ffi::CString, io};

use nix::{
    errno::Errno,
    unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid},
};

use super::launch::{LaunchFailure, Stage};

/// To whom a worker's files must belong; what is `None` stays the server's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl Owner {
    /// Names that are not known are left for the launcher to complain about.
    pub(super) fn find(user: Option<&str>, group: Option<&str>) -> Self {
        let user = user.and_then(|name| User::from_name(name).ok().flatten());
        let group = group.and_then(|name| Group::from_name(name).ok().flatten());
        let group = group.map(|group| group.gid).or(user.as_ref().map(|user| user.gid));
        Self { user: user.map(|user| user.uid.as_raw()), group: group.map(Gid::as_raw) }
    }

    pub(super) fn is_another_user(self) -> bool {
        self.user.is_some_and(|user| user != Uid::effective().as_raw())
    }
}

/// Becomes this user in this group, with the further groups of the user; with a group alone there are no further ones.
pub(super) fn take_on(user: Option<&str>, group: Option<&str>) -> Result<(), LaunchFailure> {
    let group = group.map(find_group).transpose()?;
    match (user, group) {
        (Some(name), group) => become_user(name, group),
        (None, Some(group)) => enter_group(group),
        (None, None) => Ok(()),
    }
}

fn become_user(name: &str, group: Option<Gid>) -> Result<(), LaunchFailure> {
    let fail = |errno| failed(Stage::User, errno);
    let user = User::from_name(name)
        .map_err(fail)?
        .ok_or_else(|| LaunchFailure::said(Stage::User, &format!("there is no user {name:?} on this machine")))?;
    let group = group.unwrap_or(user.gid);
    if user.uid == Uid::effective() && is_already(group) {
        return Ok(());
    }
    let c_name = CString::new(name).map_err(|error| LaunchFailure::said(Stage::User, &error.to_string()))?;
    initgroups(&c_name, group).map_err(fail)?;
    setgid(group).map_err(fail)?;
    setuid(user.uid).map_err(fail)
}

fn enter_group(group: Gid) -> Result<(), LaunchFailure> {
    if is_already(group) {
        return Ok(());
    }
    setgroups(&[]).and_then(|()| setgid(group)).map_err(|errno| failed(Stage::Group, errno))
}

/// Whether there is nothing to change, nor the right to. With the right, the further groups are set in any case.
fn is_already(group: Gid) -> bool {
    group == Gid::effective() && !Uid::effective().is_root()
}

fn find_group(name: &str) -> Result<Gid, LaunchFailure> {
    let found = Group::from_name(name).map_err(|errno| failed(Stage::Group, errno))?;
    let missing = || LaunchFailure::said(Stage::Group, &format!("there is no group {name:?} on this machine"));
    found.map(|group| group.gid).ok_or_else(missing)
}

fn failed(stage: Stage, errno: Errno) -> LaunchFailure {
    LaunchFailure::io(stage, &io::Error::from(errno))
}
