//! The private directory with the sockets that workers connect to.

use std::{
    fs::{self, DirBuilder, DirEntry, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};
use tokio::net::UnixListener;

use crate::model::WorkerId;

const PREFIX: &str = "remuda-";
/// Held locked for as long as the server lives, so that a later one can tell a leftover from a live directory.
const LOCK: &str = "lock";
const NEW_LOCK: &str = "lock.new";

/// Removed, with all that is in it, when the server ends.
#[derive(Debug)]
pub struct SocketDir {
    path: PathBuf,
    _lock: File,
}

/// One worker's socket, removed when it is no longer needed.
#[derive(Debug)]
pub(super) struct WorkerSocket {
    _directory: WorkerDir,
    pub path: PathBuf,
    pub listener: UnixListener,
}

impl SocketDir {
    /// Makes a directory that only this user can enter, under `base`, and removes those that dead servers left there.
    pub fn create(base: &Path) -> io::Result<Self> {
        remove_leftovers(base);
        let path = base.join(format!("{PREFIX}{:08x}", fastrand::u32(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Locked before it has its name, so that no other server ever sees it unlocked.
        let lock = File::create(path.join(NEW_LOCK))?;
        lock.try_lock().map_err(|error| io::Error::other(error.to_string()))?;
        fs::rename(path.join(NEW_LOCK), path.join(LOCK))?;
        Ok(Self { path, _lock: lock })
    }

    /// Makes the socket for one worker. If the worker runs as another user, that user gets the worker's own
    /// directory, and everyone may pass through ours without being able to look into it.
    pub(super) fn listen(&self, worker: WorkerId, user: Option<&str>) -> io::Result<WorkerSocket> {
        let directory = WorkerDir(self.path.join(worker.to_string()));
        DirBuilder::new().mode(0o700).create(&directory.0)?;
        if let Some(user) = user.and_then(|name| User::from_name(name).ok().flatten()) {
            fs::set_permissions(&self.path, fs::Permissions::from_mode(0o711))?;
            chown(&directory.0, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        let path = directory.0.join("s");
        let listener = UnixListener::bind(&path)?;
        // The directory is what keeps others out; the worker's user must be able to connect.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        Ok(WorkerSocket { _directory: directory, path, listener })
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// One worker's own directory, removed with the last that needs it.
#[derive(Debug)]
struct WorkerDir(PathBuf);

impl Drop for WorkerDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that was killed could not clean up. Only what certainly is such a leftover is removed.
fn remove_leftovers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        if is_left_over(&entry).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether this is a directory of our making and our user's, whose server is gone.
fn is_left_over(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_suffix);
    let metadata = entry.metadata()?;
    if !ours || !metadata.is_dir() || metadata.uid() != Uid::effective().as_raw() {
        return Ok(false);
    }
    for inside in fs::read_dir(entry.path())? {
        let name = inside?.file_name();
        let expected = name.to_str().is_some_and(|name| name == LOCK || name.parse::<u64>().is_ok());
        if !expected {
            return Ok(false);
        }
    }
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let lock = File::options().read(true).custom_flags(flags).open(entry.path().join(LOCK))?;
    Ok(lock.metadata()?.is_file() && lock.try_lock().is_ok())
}

fn is_suffix(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_left_of_a_directory_or_its_sockets() {
        let base = tempfile::tempdir().unwrap();
        let dir = SocketDir::create(base.path()).unwrap();
        assert_eq!(fs::metadata(&dir.path).unwrap().permissions().mode() & 0o777, 0o700);
        let socket = dir.listen(WorkerId(1), None).unwrap();
        assert!(socket.path.exists());
        drop(socket);
        assert!(!dir.path.join("1").exists());
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_dead_servers_directory_is_removed_and_a_live_ones_is_kept() {
        let base = tempfile::tempdir().unwrap();
        let leftover = base.path().join("remuda-0123abcd");
        fs::create_dir(&leftover).unwrap();
        File::create(leftover.join(LOCK)).unwrap();
        let others = ["remuda-project", "remuda-89abcdef"].map(|name| base.path().join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
            File::create(other.join(LOCK)).unwrap();
            File::create(other.join("precious")).unwrap();
        }
        let live = SocketDir::create(base.path()).unwrap();
        assert!(!leftover.exists());
        let _other = SocketDir::create(base.path()).unwrap();
        assert!(live.path.exists());
        assert!(others.iter().all(|other| other.join("precious").exists()), "what is not ours is left alone");
    }
}
