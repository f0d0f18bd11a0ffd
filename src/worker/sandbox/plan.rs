//! The messages between the server and the launcher: the plan of a launch, and the report of a failed one.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Confinement, KindConfig};

/// Exit code of a launcher that did not execute the worker's command.
pub(in crate::worker) const LAUNCH_FAILED: u8 = 125;
/// Start of the line on stderr that carries the report.
const REPORT_PREFIX: &str = "remuda-launch: ";

/// The launcher's instructions, passed as JSON in its second argument.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::worker) struct LaunchPlan {
    /// The server's process id. If it is not our parent any more, the server has died and the worker is not needed.
    pub parent: i32,
    pub directory: Option<String>,
    /// True if the directory belongs to this worker alone.
    pub private: bool,
    pub user: Option<String>,
    pub group: Option<String>,
    pub confinement: Confinement,
    pub command: Vec<String>,
    /// Files to try to open as the worker, instead of executing the command.
    pub probe: Option<Vec<PathBuf>>,
}

impl LaunchPlan {
    /// The plan of a worker of this kind, without a directory.
    pub(in crate::worker) fn new(kind: &KindConfig) -> Self {
        Self {
            parent: rustix::process::getpid().as_raw_pid(),
            directory: None,
            private: false,
            user: kind.user.clone(),
            group: kind.group.clone(),
            confinement: kind.confinement.clone(),
            command: kind.command.clone(),
            probe: None,
        }
    }
}

/// The reason why a worker's command was not executed. Its text follows the words "could not be started: ".
#[derive(Debug)]
pub(in crate::worker) struct LaunchFailure(String);

impl LaunchFailure {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The report as a line for stderr, where the server finds it.
    pub(super) fn to_line(&self) -> String {
        format!("{REPORT_PREFIX}{}", serde_json::to_string(&self.0).unwrap_or_default())
    }

    /// Finds the report in a child's stderr.
    pub(in crate::worker) fn find(stderr: &str) -> Option<Self> {
        let line = stderr.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX))?;
        serde_json::from_str(line).ok().map(Self)
    }

    /// A child's stderr without the report.
    pub(in crate::worker) fn strip(stderr: &str) -> String {
        stderr.split_inclusive('\n').filter(|line| !line.starts_with(REPORT_PREFIX)).collect()
    }
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For failures whose own text says enough.
impl<E: std::error::Error> From<E> for LaunchFailure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
