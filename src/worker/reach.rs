//! What a kind's workers could do with a file: found out by one of our own processes that becomes as they are, and tries.
//!
//! It goes the launcher's way, so that users, groups, capabilities, Landlock and whatever else the kernel knows of have
//! the same say as over a worker. A kind whose workers cannot be started reaches nothing.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::config::{Confinement, KindConfig, WorkDir};

use super::launch::{self, LaunchPlan};

/// The first argument that turns our binary into the one that tries.
pub const REACH_ARGUMENT: &str = "__reach";

/// What a worker could do with a file that is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    Read,
    /// Write to it, or put another in its place.
    Replace,
}

#[derive(Debug, Serialize, Deserialize)]
struct Errand {
    plan: LaunchPlan,
    files: Vec<PathBuf>,
}

/// What workers of a kind could do with each of the files. `launcher` is our own binary.
pub fn reach(launcher: &Path, kind: &KindConfig, files: &[&Path]) -> io::Result<Vec<Option<Reach>>> {
    let files = files.iter().map(|file| file.to_path_buf()).collect();
    let errand = serde_json::to_string(&Errand { plan: plan(kind), files })?;
    let mut command = Command::new(launcher);
    command.arg(REACH_ARGUMENT).arg(errand).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut answer = String::new();
    let read = child.stdout.take().expect("stdout is piped").read_to_string(&mut answer);
    // As the first process the server may have reaped it as an orphan; the answer is all that counts.
    let _ = child.wait();
    read?;
    Ok(serde_json::from_str(&answer)?)
}

/// How such a worker would be launched. What is not there yet cannot lead to a file that is, and is left out, for its
/// absence would be a reason not to launch.
fn plan(kind: &KindConfig) -> LaunchPlan {
    let directory = match &kind.dir {
        WorkDir::At(path) if path.is_dir() => Some(path.display().to_string()),
        _ => None,
    };
    let there = |list: &Option<Vec<String>>| {
        list.as_ref().map(|list| list.iter().filter(|path| Path::new(path).exists()).cloned().collect())
    };
    let confinement = Confinement {
        landlock_read: there(&kind.confinement.landlock_read),
        landlock_write: there(&kind.confinement.landlock_write),
        ..kind.confinement.clone()
    };
    LaunchPlan {
        parent: rustix::process::getpid().as_raw_pid(),
        directory,
        private: false,
        user: kind.user.clone(),
        group: kind.group.clone(),
        confinement,
        command: kind.command.clone(),
    }
}

/// Runs the process that tries.
#[must_use]
pub fn try_reach(errand: Option<String>) -> ExitCode {
    let Some(errand) = errand.and_then(|errand| serde_json::from_str::<Errand>(&errand).ok()) else {
        return ExitCode::FAILURE;
    };
    let can_be_launched = launch::set_apart().and_then(|()| launch::prepare(&errand.plan)).is_ok();
    let tried = |file: &PathBuf| can_be_launched.then(|| reach_of(file)).flatten();
    let reached: Vec<Option<Reach>> = errand.files.iter().map(tried).collect();
    match serde_json::to_writer(io::stdout(), &reached) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn reach_of(file: &Path) -> Option<Reach> {
    let opens = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(file).is_ok();
    if opens(OpenOptions::new().read(true)) {
        Some(Reach::Read)
    } else if opens(OpenOptions::new().write(true)) || file.ancestors().any(is_replaceable) {
        Some(Reach::Replace)
    } else {
        None
    }
}

/// Whether an entry of a directory could be taken out of it, and another put in.
fn is_replaceable(entry: &Path) -> bool {
    let Some(directory) = entry.parent() else { return false };
    let (Ok(around), Ok(inside)) = (fs::metadata(directory), fs::symlink_metadata(entry)) else { return false };
    let own = |metadata: &fs::Metadata| metadata.uid() == Uid::effective().as_raw() || Uid::effective().is_root();
    let is_sticky = around.mode() & libc::S_ISVTX != 0;
    if is_sticky && !own(&around) && !own(&inside) {
        return false;
    }
    // A file without a name takes the same rights, and leaves nothing behind.
    match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(directory) {
        Ok(_) => true,
        // The rights were there, and were looked at first.
        Err(error) => matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_can_be_opened_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "x").unwrap();
        assert_eq!(reach_of(&file), Some(Reach::Read));
        assert_eq!(reach_of(Path::new("/no/such/file")), None);
    }

    #[test]
    fn what_lies_in_a_directory_of_ones_own_can_be_replaced_and_the_root_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
        assert!(is_replaceable(&file));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(!is_replaceable(Path::new("/")));
    }
}
