//! The server's private directory, with the sockets and the directories of its workers.

use std::{
    fs::{self, DirBuilder, DirEntry, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::Uid;
use rustix::{
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};
use tokio::{net::UnixListener, time::timeout};
use tracing::warn;

use crate::model::WorkerId;

use super::sandbox::FileOwner;

const DIR_PREFIX: &str = "remuda-";
/// Prefix of a worker's private directory; its id follows.
const PRIVATE_PREFIX: char = 'w';
/// Pending connections of other processes that do not yet make the worker wait for their refusal.
const ACCEPT_BACKLOG: i32 = 128;
/// Time that the end of a worker waits for the removal of its private directory.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// File that is locked while the server lives, so that a later one can tell a leftover from a live directory.
const LOCK_FILE: &str = "lock";
const NEW_LOCK_FILE: &str = "lock.new";

/// The directory, removed with its contents when the server ends.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    _lock: File,
}

/// One worker's socket, removed when it is no longer needed.
#[derive(Debug)]
pub(super) struct WorkerSocket {
    path: PathBuf,
    pub listener: UnixListener,
}

impl RuntimeDir {
    /// Creates a directory under `base` that only this user can enter, and removes those of dead servers.
    pub fn create(base: &Path) -> io::Result<Self> {
        remove_leftovers(base);
        let path = base.join(format!("{DIR_PREFIX}{:08x}", fastrand::u32(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Locked before it has its final name, so that no other server ever sees it unlocked.
        let lock = File::create(path.join(NEW_LOCK_FILE))?;
        lock.try_lock().map_err(|error| io::Error::other(error.to_string()))?;
        fs::rename(path.join(NEW_LOCK_FILE), path.join(LOCK_FILE))?;
        Ok(Self { path, _lock: lock })
    }

    /// Creates the socket of one worker, to which only the worker's user can connect. The directory around it stays ours,
    /// so that no other user can replace it.
    pub(super) fn listen(&self, worker: WorkerId, owner: FileOwner) -> io::Result<WorkerSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file has the socket's mode from its first moment on.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        let path = self.path.join(worker.to_string());
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        listen(&socket, ACCEPT_BACKLOG)?;
        let socket = WorkerSocket { path, listener: UnixListener::from_std(socket.into())? };
        if owner.is_another_user() {
            lchown(&socket.path, owner.user, owner.group).map_err(|error| chown_error("socket", &error))?;
            self.allow_traversal()?;
        }
        Ok(socket)
    }

    /// Creates an empty directory that only the worker's user can enter.
    pub(super) fn create_private_dir(&self, worker: WorkerId, owner: FileOwner) -> io::Result<PrivateDir> {
        let directory = PrivateDir(self.path.join(format!("{PRIVATE_PREFIX}{worker}")));
        DirBuilder::new().mode(0o700).create(directory.path())?;
        if owner != FileOwner::default() {
            lchown(directory.path(), owner.user, owner.group).map_err(|error| chown_error("directory", &error))?;
        }
        if owner.is_another_user() {
            self.allow_traversal()?;
        }
        Ok(directory)
    }

    /// Lets every user traverse the directory, but not list it.
    fn allow_traversal(&self) -> io::Result<()> {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o711))
    }
}

fn chown_error(what: &str, error: &io::Error) -> io::Error {
    let message = format!("cannot give its {what} to its user: {error}; check that the server runs as root");
    io::Error::new(error.kind(), message)
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl WorkerSocket {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkerSocket {
    fn drop(&mut self) {
        log_unless_removed(&self.path, fs::remove_file(&self.path));
    }
}

/// The working directory of one worker, removed with its contents.
#[derive(Debug)]
pub(super) struct PrivateDir(PathBuf);

impl Drop for PrivateDir {
    fn drop(&mut self) {
        log_unless_removed(&self.0, fs::remove_dir_all(&self.0));
    }
}

fn log_unless_removed(path: &Path, removed: io::Result<()>) {
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(path = %path.display(), %error, "cannot remove what a worker was given");
    }
}

impl PrivateDir {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it on a blocking thread: a worker may have left much behind.
    pub(super) async fn remove(self) {
        let removal = tokio::task::spawn_blocking(move || drop(self));
        // A longer removal goes on by itself.
        let _ = timeout(REMOVE_TIMEOUT, removal).await;
    }
}

/// Removes the directories of killed servers, and nothing that is not certainly one.
fn remove_leftovers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        if is_leftover(&entry).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// True for a server's directory, of our user, whose server is gone.
fn is_leftover(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let ours = name.to_str().and_then(|name| name.strip_prefix(DIR_PREFIX)).is_some_and(is_dir_suffix);
    let metadata = entry.metadata()?;
    if !ours || !metadata.is_dir() || metadata.uid() != Uid::effective().as_raw() {
        return Ok(false);
    }
    for inside in fs::read_dir(entry.path())? {
        let name = inside?.file_name();
        let expected = name.to_str().is_some_and(|name| name == LOCK_FILE || is_worker_entry(name));
        if !expected {
            return Ok(false);
        }
    }
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let lock = File::options().read(true).custom_flags(flags).open(entry.path().join(LOCK_FILE))?;
    Ok(lock.metadata()?.is_file() && lock.try_lock().is_ok())
}

/// True for the name of a worker's socket or private directory.
fn is_worker_entry(name: &str) -> bool {
    name.strip_prefix(PRIVATE_PREFIX).unwrap_or(name).parse::<u64>().is_ok()
}

fn is_dir_suffix(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_and_its_entries_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::create(base.path()).unwrap();
        assert_eq!(fs::metadata(&dir.path).unwrap().permissions().mode() & 0o777, 0o700);
        let socket = dir.listen(WorkerId(1), FileOwner::default()).unwrap();
        assert_eq!(fs::metadata(socket.path()).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!dir.path.join("1").exists());
        let private = dir.create_private_dir(WorkerId(1), FileOwner::default()).unwrap();
        assert_eq!(fs::metadata(private.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(private.path().join("left"), "behind").unwrap();
        private.remove().await;
        assert!(!dir.path.join("w1").exists());
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 1, "only the lock is left");
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn directory_of_a_dead_server_is_removed_and_of_a_live_one_kept() {
        let base = tempfile::tempdir().unwrap();
        let leftover = base.path().join("remuda-0123abcd");
        fs::create_dir(&leftover).unwrap();
        File::create(leftover.join(LOCK_FILE)).unwrap();
        fs::create_dir_all(leftover.join("w7/precious no more")).unwrap();
        File::create(leftover.join("7")).unwrap();
        let others = ["remuda-project", "remuda-89abcdef"].map(|name| base.path().join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
            File::create(other.join(LOCK_FILE)).unwrap();
            File::create(other.join("precious")).unwrap();
        }
        let live = RuntimeDir::create(base.path()).unwrap();
        assert!(!leftover.exists());
        let _other = RuntimeDir::create(base.path()).unwrap();
        assert!(live.path.exists());
        assert!(others.iter().all(|other| other.join("precious").exists()), "what is not ours is left alone");
    }
}
