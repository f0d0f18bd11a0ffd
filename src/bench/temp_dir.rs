//! A directory for the files of one run, which goes with it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(super) struct TempDir(PathBuf);

impl TempDir {
    /// Makes one that is ours alone, below `place`.
    pub(super) fn new(place: &Path) -> io::Result<Self> {
        let path = place.join(format!("remuda-bench-{:08x}", fastrand::u32(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
