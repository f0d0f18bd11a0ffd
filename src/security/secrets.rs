//! Keeps the files that only the server may read from workers.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::getegid;
use thiserror::Error;

use crate::{
    config::{KindConfig, ServerConfig},
    worker::{self, FileAccess},
};

/// A file that only the server may read, and the config key that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    pub key: &'static str,
    pub path: PathBuf,
}

/// Reason for refusing kinds.
#[derive(Debug, Error)]
pub enum SecretsError {
    #[error(
        "{}; give such a kind a user of its own (user), confine it (landlock_read), or deny it the file; if you trust \
         its workers with the file, set server.workers_may_read_secrets = true", .0.join("; ")
    )]
    Leaks(Vec<String>),
    #[error("cannot find out whether workers could read the server's secrets: {0}")]
    Unchecked(io::Error),
}

/// All secrets of a server.
#[must_use]
pub(super) fn all(server: &ServerConfig) -> Vec<Secret> {
    let key = server.tls_key.clone().map(|path| Secret { key: "server.tls_key", path });
    let tokens = server.tokens.as_ref().map(|path| Secret { key: "server.tokens", path: path.clone() });
    key.into_iter().chain(tokens).collect()
}

/// Refuses kinds whose workers could read or replace the server's secrets, unless the configuration allows it. `launcher` is
/// our own binary.
pub fn check_secret_access(server: &ServerConfig, kinds: &[KindConfig], launcher: &Path) -> Result<(), SecretsError> {
    let secrets = all(server);
    if server.workers_may_read_secrets || secrets.is_empty() {
        return Ok(());
    }
    let secret_paths = paths(&secrets).map_err(SecretsError::Unchecked)?;
    let paths: Vec<&Path> = secret_paths.iter().map(|(_, path)| path.as_path()).collect();
    let mut leaks: Vec<String> = Vec::new();
    for kind in kinds {
        let accesses = worker::probe_files(launcher, kind, &paths).map_err(SecretsError::Unchecked)?;
        for ((secret, _), access) in secret_paths.iter().zip(accesses) {
            let verb = match access {
                None => continue,
                Some(FileAccess::Read) => "read",
                Some(FileAccess::Replace) => "replace",
            };
            let Secret { key, path } = secret;
            leaks.push(format!("workers of the kind {} could {verb} {} ({key})", kind.name, path.display()));
        }
    }
    // Both paths of a secret may give the same leak.
    leaks.dedup();
    if leaks.is_empty() { Ok(()) } else { Err(SecretsError::Leaks(leaks)) }
}

/// Each secret by its own path and by the one behind all links: either may lie where it can be replaced.
fn paths(secrets: &[Secret]) -> io::Result<Vec<(&Secret, PathBuf)>> {
    let mut paths = Vec::new();
    for secret in secrets {
        paths.push((secret, secret.path.clone()));
        paths.push((secret, fs::canonicalize(&secret.path)?));
    }
    Ok(paths)
}

impl Secret {
    /// The permissions of the file, if they let others than the server's user and group read or write it.
    pub(super) fn loose_mode(&self) -> Option<u32> {
        let metadata = fs::metadata(&self.path).ok()?;
        let own_group = metadata.gid() == getegid().as_raw();
        let others = if own_group { 0o007 } else { 0o077 };
        (metadata.mode() & others != 0).then_some(metadata.mode() & 0o777)
    }
}
