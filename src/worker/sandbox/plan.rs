//! The messages between the server and the launcher: the plan of a launch, and the report of a failed one.

use std::{io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Confinement;

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

/// The reason why a worker's command was not executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::worker) struct LaunchFailure {
    pub stage: LaunchStage,
    pub errno: Option<i32>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::worker) enum LaunchStage {
    Plan,
    Parent,
    Directory,
    User,
    Group,
    Session,
    Descriptors,
    Limits,
    Privileges,
    Landlock,
    Execute,
    /// Execution was denied under Landlock, which is the likely reason.
    Confined,
    Interpreter,
}

impl LaunchFailure {
    pub(super) fn new(stage: LaunchStage, message: impl Into<String>) -> Self {
        Self { stage, errno: None, message: message.into() }
    }

    pub(super) fn io(stage: LaunchStage, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self { stage, errno: error.raw_os_error(), message: error.to_string() }
    }

    /// The report as a line for stderr, where the server finds it.
    pub(super) fn to_line(&self) -> String {
        format!("{REPORT_PREFIX}{}", serde_json::to_string(self).unwrap_or_default())
    }

    /// Finds the report in a child's stderr.
    pub(in crate::worker) fn find(stderr: &str) -> Option<Self> {
        let line = stderr.lines().find_map(|line| line.strip_prefix(REPORT_PREFIX))?;
        serde_json::from_str(line).ok()
    }

    /// A child's stderr without the report.
    pub(in crate::worker) fn strip(stderr: &str) -> String {
        stderr.split_inclusive('\n').filter(|line| !line.starts_with(REPORT_PREFIX)).collect()
    }
}
