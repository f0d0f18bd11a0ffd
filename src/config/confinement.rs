//! What keeps a kind's workers in their place: read, checked, and shown again.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keys::confinement as keys;
use super::problem::Problem;
use super::reader::{Origin, SectionReader};
use super::sections::{Input, MEMORY_SIZES, MOST_RECORDS};
use super::show::{Entry, count, duration, or_word, set, size as show_size, strings};
use super::values::{argument, boolean, count as number, duration as time, or_none, path, size};

/// What a kind's workers may not do, whatever their user may. A limit that is `None` is the server's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub no_new_privs: bool,
    /// Absolute paths. Landlock is asked for if this or the other list is there, even if it is empty.
    pub landlock_read: Option<Vec<String>>,
    pub landlock_write: Option<Vec<String>>,
    pub max_open_files: Option<u64>,
    pub max_processes: Option<u64>,
    /// In bytes, like the next two.
    pub max_core_size: Option<u64>,
    pub max_file_size: Option<u64>,
    pub max_address_space: Option<u64>,
    /// Whole seconds.
    pub max_cpu_time: Option<Duration>,
}

impl Confinement {
    #[must_use]
    pub fn wants_landlock(&self) -> bool {
        self.landlock_read.is_some() || self.landlock_write.is_some()
    }
}

/// Where a kind's workers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkDir {
    /// Absolute.
    At(PathBuf),
    /// One of its own for each worker, empty at first and gone when the worker is.
    Private,
}

/// The word for a directory of the worker's own.
pub(super) const PRIVATE: &str = "private";

/// Room for anything but a slip of the hand, and so little that no kernel takes it for "no limit".
const LARGEST_FILE: u64 = 1 << 60;
const FEWEST_FILES: u64 = 8;

pub(super) fn read(section: &mut SectionReader<'_>, input: &Input<'_>) -> Confinement {
    let landlock_read = paths(section, &keys::LANDLOCK_READ, input);
    let landlock_write = paths(section, &keys::LANDLOCK_WRITE, input);
    let no_new_privs = section.read(&keys::NO_NEW_PRIVS, boolean);
    if let Origin::Written(place) = &no_new_privs.origin
        && !no_new_privs.value
        && (landlock_read.is_some() || landlock_write.is_some())
    {
        section.mistake(&keys::NO_NEW_PRIVS, place, Problem::LandlockPrivileges);
    }
    let files = or_none(number(FEWEST_FILES..=MOST_RECORDS as u64));
    let bytes = || or_none(size(0..=LARGEST_FILE));
    Confinement {
        no_new_privs: no_new_privs.value,
        landlock_read,
        landlock_write,
        max_open_files: section.read(&keys::MAX_OPEN_FILES, files).value,
        max_processes: section.read(&keys::MAX_PROCESSES, or_none(number(1..=MOST_RECORDS as u64))).value,
        max_core_size: section.read(&keys::MAX_CORE_SIZE, bytes()).value,
        max_file_size: section.read(&keys::MAX_FILE_SIZE, bytes()).value,
        max_address_space: section.read(&keys::MAX_ADDRESS_SPACE, or_none(size(MEMORY_SIZES))).value,
        max_cpu_time: section.read(&keys::MAX_CPU_TIME, or_none(whole_seconds)).value,
    }
}

/// The paths, made absolute; `None` if the key is not written.
fn paths(section: &mut SectionReader<'_>, key: &super::keys::Key, input: &Input<'_>) -> Option<Vec<String>> {
    let written = section.has(key);
    let absolute = |node: &_| Ok(path(input.base)(node)?.to_string_lossy().into_owned());
    let list = section.read_list(key, absolute);
    written.then(|| super::reader::values(list.value))
}

fn whole_seconds(node: &super::tree::Node) -> Result<Duration, Problem> {
    const LONGEST: Duration = Duration::from_hours(365 * 24);
    let duration = time(Duration::from_secs(1)..=LONGEST)(node)?;
    if duration.subsec_nanos() == 0 { Ok(duration) } else { Err(Problem::NotWholeSeconds) }
}

/// A path, made absolute, or the word for a private directory.
pub(super) fn work_dir(input: &Input<'_>, node: &super::tree::Node) -> Result<WorkDir, Problem> {
    if argument(node)? == PRIVATE { Ok(WorkDir::Private) } else { path(input.base)(node).map(WorkDir::At) }
}

/// The entries of one kind.
pub(super) fn written(config: &Confinement) -> Vec<Entry> {
    vec![
        set(&keys::NO_NEW_PRIVS, config.no_new_privs.to_string()),
        (&keys::LANDLOCK_READ, config.landlock_read.as_deref().map(strings)),
        (&keys::LANDLOCK_WRITE, config.landlock_write.as_deref().map(strings)),
        set(&keys::MAX_OPEN_FILES, or_word("none", config.max_open_files.map(count))),
        set(&keys::MAX_PROCESSES, or_word("none", config.max_processes.map(count))),
        set(&keys::MAX_CORE_SIZE, or_word("none", config.max_core_size.map(show_size))),
        set(&keys::MAX_FILE_SIZE, or_word("none", config.max_file_size.map(show_size))),
        set(&keys::MAX_ADDRESS_SPACE, or_word("none", config.max_address_space.map(show_size))),
        set(&keys::MAX_CPU_TIME, or_word("none", config.max_cpu_time.map(duration))),
    ]
}
