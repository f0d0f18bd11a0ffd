//! The private directory with the sockets that workers connect to.

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

const PREFIX: &str = "remuda-";
/// A worker's private directory is called so, and then by the worker's number.
const PRIVATE_PREFIX: char = 'w';
/// How many that are not the worker may try to connect to its socket before the worker has to wait for them to be refused.
const BACKLOG: i32 = 128;
/// How long the end of a worker waits for its private directory to be removed.
const REMOVE_WAIT: Duration = Duration::from_secs(5);
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
    file: SocketFile,
    pub listener: UnixListener,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

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

    /// Makes the socket for one worker, which nobody but the worker's user can connect to. The directory around it
    /// stays ours, so that nobody can put something else in its place.
    pub(super) fn listen(&self, worker: WorkerId, owner: FileOwner) -> io::Result<WorkerSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file has the socket's mode from its first moment on.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        let path = self.path.join(worker.to_string());
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        let file = SocketFile(path);
        listen(&socket, BACKLOG)?;
        if owner.is_another_user() {
            lchown(&file.0, owner.user, owner.group).map_err(|error| cannot_give("socket", &error))?;
            self.let_through()?;
        }
        Ok(WorkerSocket { file, listener: UnixListener::from_std(socket.into())? })
    }

    /// Makes an empty directory that only the worker's user can enter.
    pub(super) fn private(&self, worker: WorkerId, owner: FileOwner) -> io::Result<PrivateDir> {
        let directory = PrivateDir(self.path.join(format!("{PRIVATE_PREFIX}{worker}")));
        DirBuilder::new().mode(0o700).create(directory.path())?;
        if owner != FileOwner::default() {
            lchown(directory.path(), owner.user, owner.group).map_err(|error| cannot_give("directory", &error))?;
        }
        if owner.is_another_user() {
            self.let_through()?;
        }
        Ok(directory)
    }

    /// Lets everyone pass through the directory without being able to look into it.
    fn let_through(&self) -> io::Result<()> {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o711))
    }
}

fn cannot_give(what: &str, error: &io::Error) -> io::Error {
    let message = format!("cannot give its {what} to its user: {error}; check that the server runs as root");
    io::Error::new(error.kind(), message)
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl WorkerSocket {
    pub(super) fn path(&self) -> &Path {
        &self.file.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        warn_unless_gone(&self.0, fs::remove_file(&self.0));
    }
}

/// Where one worker works, removed with all that the worker has left there.
#[derive(Debug)]
pub(super) struct PrivateDir(PathBuf);

impl Drop for PrivateDir {
    fn drop(&mut self) {
        warn_unless_gone(&self.0, fs::remove_dir_all(&self.0));
    }
}

fn warn_unless_gone(path: &Path, removed: io::Result<()>) {
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

    /// Removes it without holding anyone up: a worker may have left much behind.
    pub(super) async fn remove(self) {
        let removal = tokio::task::spawn_blocking(move || drop(self));
        // What takes longer goes on by itself.
        let _ = timeout(REMOVE_WAIT, removal).await;
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
        let expected = name.to_str().is_some_and(|name| name == LOCK || is_workers(name));
        if !expected {
            return Ok(false);
        }
    }
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let lock = File::options().read(true).custom_flags(flags).open(entry.path().join(LOCK))?;
    Ok(lock.metadata()?.is_file() && lock.try_lock().is_ok())
}

/// Whether this is the name of a worker's socket or private directory.
fn is_workers(name: &str) -> bool {
    name.strip_prefix(PRIVATE_PREFIX).unwrap_or(name).parse::<u64>().is_ok()
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
        let socket = dir.listen(WorkerId(1), FileOwner::default()).unwrap();
        assert_eq!(fs::metadata(socket.path()).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!dir.path.join("1").exists());
        let private = dir.private(WorkerId(1), FileOwner::default()).unwrap();
        assert_eq!(fs::metadata(private.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(private.path().join("left"), "behind").unwrap();
        private.remove().await;
        assert!(!dir.path.join("w1").exists());
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 1, "only the lock is left");
        drop(dir);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_dead_servers_directory_is_removed_and_a_live_ones_is_kept() {
        let base = tempfile::tempdir().unwrap();
        let leftover = base.path().join("remuda-0123abcd");
        fs::create_dir(&leftover).unwrap();
        File::create(leftover.join(LOCK)).unwrap();
        fs::create_dir_all(leftover.join("w7/precious no more")).unwrap();
        File::create(leftover.join("7")).unwrap();
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
