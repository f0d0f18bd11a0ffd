//! A value that is read from files, and read again when they change.

use std::{fs, path::PathBuf, sync::Arc, time::SystemTime};

use parking_lot::RwLock;

#[derive(Debug)]
pub(super) struct Reloadable<T> {
    files: Vec<PathBuf>,
    current: RwLock<Current<T>>,
}

#[derive(Debug)]
struct Current<T> {
    value: Arc<T>,
    /// Modification times of the files when they were last read.
    modified: Vec<Option<SystemTime>>,
}

impl<T> Reloadable<T> {
    pub(super) fn load<E>(files: Vec<PathBuf>, read: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        // Taken before the files are read: a change during the read is then seen as one.
        let modified = modification_times(&files);
        let current = RwLock::new(Current { value: Arc::new(read()?), modified });
        Ok(Self { files, current })
    }

    pub(super) fn get(&self) -> Arc<T> {
        self.current.read().value.clone()
    }

    /// Reads the files again. The current value stays if they cannot be used, and the failure is reported once for each
    /// change of the files.
    pub(super) fn reload<E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
        let modified = modification_times(&self.files);
        let value = read();
        let mut current = self.current.write();
        current.modified = modified;
        current.value = Arc::new(value?);
        Ok(())
    }

    /// True if the files have changed since they were last read.
    pub(super) fn is_stale(&self) -> bool {
        modification_times(&self.files) != self.current.read().modified
    }
}

fn modification_times(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    files.iter().map(|file| fs::metadata(file).and_then(|metadata| metadata.modified()).ok()).collect()
}
