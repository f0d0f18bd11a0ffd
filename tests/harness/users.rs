//! Programs and directories that other users can reach.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A user without rights that every machine has.
pub(crate) const NOBODY: u32 = 65534;
/// Another one.
pub(crate) const DAEMON: u32 = 1;

/// A directory that everyone can look into.
pub(crate) fn public_dir() -> TempDir {
    tempfile::Builder::new().prefix("rp").permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap()
}

/// A copy of a program that everyone can run.
pub(crate) fn public_copy(program: &str, dir: &TempDir) -> PathBuf {
    let copy = dir.path().join(Path::new(program).file_name().unwrap());
    fs::copy(program, &copy).unwrap();
    copy
}

/// True if the test may change users, which most tests of the sandbox need. If not, it reports that the test is skipped, or
/// fails it where that must not happen.
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        super::skip("the right to change the user (root)");
    }
    root
}
