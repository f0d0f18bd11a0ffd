//! A probe: a launch that, once set up as a worker of a kind, tries to open files instead of executing the command.
//!
//! Trying gives users, groups, access lists, capabilities and Landlock the same say as over a worker; computing it would
//! mean to know all of their rules again. A kind whose workers cannot be started has no access.

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

use super::{launcher::LAUNCH_ARGUMENT, plan::LaunchPlan};

/// Access of a worker to a file that is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    Read,
    /// It can write to the file, or put another in its place.
    Replace,
}

/// Finds the access that workers of a kind have to each of the files. `launcher` is our own binary.
pub fn probe_files(launcher: &Path, kind: &KindConfig, files: &[&Path]) -> io::Result<Vec<Option<FileAccess>>> {
    let plan = LaunchPlan { probe: Some(files.iter().map(|file| file.to_path_buf()).collect()), ..plan(kind) };
    let mut command = Command::new(launcher);
    command.arg(LAUNCH_ARGUMENT).arg(serde_json::to_string(&plan)?).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut answer = String::new();
    let read = child.stdout.take().expect("stdout is piped").read_to_string(&mut answer);
    // The reaping of orphans may have taken its exit status; only the answer counts.
    let _ = child.wait();
    read?;
    Ok(serde_json::from_str(&answer)?)
}

/// The plan of a worker's launch. Paths that do not exist yet are left out: they cannot lead to a file that does, and would
/// make the launch fail.
fn plan(kind: &KindConfig) -> LaunchPlan {
    let mut plan = LaunchPlan::new(kind);
    if let WorkDir::At(path) = &kind.dir
        && path.is_dir()
    {
        plan.directory = Some(path.display().to_string());
    }
    let Confinement { landlock_read, landlock_write, .. } = &mut plan.confinement;
    for list in [landlock_read, landlock_write].into_iter().flatten() {
        list.retain(|path| Path::new(path).exists());
    }
    plan
}

/// Writes the launcher's access to each of the files to stdout.
pub(super) fn answer(files: &[PathBuf], is_set_up: bool) -> ExitCode {
    let access = files.iter().map(|file| if is_set_up { access_to(file) } else { None });
    match serde_json::to_writer(io::stdout(), &access.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn access_to(file: &Path) -> Option<FileAccess> {
    let opens = |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(file).is_ok();
    if opens(OpenOptions::new().read(true)) {
        Some(FileAccess::Read)
    } else if opens(OpenOptions::new().write(true)) || file.ancestors().any(is_replaceable) {
        Some(FileAccess::Replace)
    } else {
        None
    }
}

/// True if an entry can be removed from its directory and another one created there.
fn is_replaceable(entry: &Path) -> bool {
    let Some(directory) = entry.parent() else { return false };
    let (Ok(around), Ok(inside)) = (fs::metadata(directory), fs::symlink_metadata(entry)) else { return false };
    let is_own = |metadata: &fs::Metadata| metadata.uid() == Uid::effective().as_raw() || Uid::effective().is_root();
    let is_sticky = around.mode() & libc::S_ISVTX != 0;
    if is_sticky && !is_own(&around) && !is_own(&inside) {
        return false;
    }
    // Creating an unnamed file needs the same rights, and leaves nothing behind.
    match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(directory) {
        Ok(_) => true,
        // The file system lacks unnamed files; the rights were checked first.
        Err(error) => matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn access_to_a_file_that_opens_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "x").unwrap();
        assert_eq!(access_to(&file), Some(FileAccess::Read));
        assert_eq!(access_to(Path::new("/no/such/file")), None);
    }

    #[test]
    fn file_in_an_own_directory_is_replaceable_and_the_root_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
        assert!(is_replaceable(&file));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(!is_replaceable(Path::new("/")));
    }
}
